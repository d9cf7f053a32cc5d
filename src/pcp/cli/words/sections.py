"""The settings of a run as options of `pcp train`, in the sections of its help."""

import argparse
from collections.abc import Mapping
from typing import Any

from pcp.backends import default_device
from pcp.training.recipes.config import (
    ALGORITHM_CHOICES,
    MEANINGS,
    InvalidTrainingConfig,
    TrainingConfig,
    read_group,
)

SECTIONS = {
    "what is trained": ("model", "weights", "lora", "dropout", "seed"),
    "data": ("data", "field", "chat_template", "tokenizer", "vocabulary"),
    "steps": (
        "steps", "batch", "context", "size", "accumulate", "dtype", "evaluate_every", "checkpoint_every", "log_every",
    ),
    "optimizer": (
        "optimizer", "momentum", "learning_rate", "final_learning_rate", "warmup_steps", "schedule",
        "weight_decay", "groups", "clip_norm",
    ),
    "where it runs, and how fast": ("device", "devices", "layout", "memory", "remat", "tolerance", "plan_seconds"),
    "workers": ("workers", "inner_steps", "shares", "artifacts", "audit_rate", "audit_tolerance"),
    "merging": (
        "algorithm", "fragments", "delay", "mixing", "outer_learning_rate", "outer_momentum", "gossip_rate", "upload",
        "download", "merge", "quorum",
    ),
    "folder of the run": (),
    "output": (),
}  # fmt: skip
"""Titles, in order, and the settings below each."""

OTHER = "steps"
"""Where a setting stands that is named in none."""

OPTIONS = {"plan_seconds": "--seconds", "groups": "--group"}
"""Settings whose option has another name: the one that it has in all commands."""


class _Joined(argparse.Action):
    """Several files as one setting, with commas between them: a shell makes several of a pattern."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: Any, _option: str | None = None
    ) -> None:
        setattr(namespace, self.dest, ",".join(values))


class _Grouped(argparse.Action):
    """Groups of parameters as one setting."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        _option: str | None = None,
    ) -> None:
        try:
            pattern, given = read_group(values)
        except InvalidTrainingConfig as error:
            parser.error(str(error))
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), pattern: given})


_SEVERAL: dict[str, dict[str, Any]] = {
    "data": {"nargs": "+", "action": _Joined},
    "groups": {"type": str, "action": _Grouped},
}
"""The options that take several values."""


def option_of(setting: str) -> str:
    """The option that sets a setting."""
    return OPTIONS.get(setting, f"--{setting.replace('_', '-')}")


def add_settings(
    parser: argparse.ArgumentParser, derived: Mapping[str, Any]
) -> dict[str, argparse._ArgumentGroup]:
    """Describe an option for every setting; returns the sections by their titles.

    Arguments:
        derived: what is told as the default of a setting, where that follows from others.
    """
    defaults, derived = TrainingConfig(), {"device": default_device()} | dict(derived)
    sections = {title: parser.add_argument_group(title) for title in SECTIONS}
    titles = {name: title for title, names in SECTIONS.items() for name in names}
    for name in sorted(MEANINGS, key=lambda name: [*titles, name].index(name)):
        default = getattr(defaults, name)
        shown = "the algorithm's own" if name in ALGORITHM_CHOICES else derived.get(name, default)
        sections[titles.get(name, OTHER)].add_argument(
            option_of(name),
            dest=name,
            default=argparse.SUPPRESS,
            help=f"{MEANINGS[name]} (default: {_NOTHING.get(repr(shown), shown)})",
            **(
                {"action": "store_true"}
                if default is False
                else {**_valued(name, type(default)), **_SEVERAL.get(name, {})}
            ),
        )
    return sections


_NOTHING = dict.fromkeys(("''", "{}", "False"), "none")
"""Defaults, as Python shows them, that are told as nothing."""


def _valued(name: str, kind: type) -> dict[str, Any]:
    """How an option takes a value of a type."""
    return {"type": kind, "metavar": _METAVARS.get(name, {int: "N", float: "X"}.get(kind, "NAME"))}


_METAVARS = {
    "model": "MODEL", "weights": "FILE", "data": "DATA", "memory": "8GiB", "plan_seconds": "S", "tolerance": "T",
    "lora": "rank=N", "groups": "GROUP", "artifacts": "CHIPS", "device": "DEVICE",
    "devices": "DEVICES", "layout": "LAYOUT",
}  # fmt: skip
