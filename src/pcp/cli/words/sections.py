"""The settings of a run as options of `pcp train`, in the sections of its help."""

import argparse
from collections.abc import Mapping
from typing import Any

from pcp.backends import default_device
from pcp.training.recipes.config import ALGORITHM_CHOICES, MEANINGS, TrainingConfig

SECTIONS = {
    "what is trained": ("model", "weights", "lora", "seed"),
    "data": ("data", "field", "chat_template", "tokenizer", "vocabulary"),
    "steps": (
        "steps", "batch", "context", "accumulate", "dtype", "evaluate_every", "checkpoint_every", "log_every",
    ),
    "optimizer": (
        "optimizer", "momentum", "learning_rate", "final_learning_rate", "warmup_steps", "schedule",
        "weight_decay", "clip_norm",
    ),
    "where it runs, and how fast": ("device", "memory", "remat", "tolerance", "plan_seconds"),
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

OPTIONS = {"plan_seconds": "--seconds"}
"""Settings whose option has another name: the one that it has in all commands."""


def option_of(setting: str) -> str:
    """The option that sets a setting."""
    return OPTIONS.get(setting, f"--{setting.replace('_', '-')}")


def add_settings(
    parser: argparse.ArgumentParser, derived: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]
) -> dict[str, argparse._ArgumentGroup]:
    """Describe an option for every setting; returns the sections by their titles.

    Arguments:
        derived: what is told as the default of a setting, where that follows from others.
        more: further properties of options.
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
            type=type(default),
            default=argparse.SUPPRESS,
            metavar=_METAVARS.get(name, {int: "N", float: "X"}.get(type(default), "NAME")),
            help=f"{MEANINGS[name]} (default: {'none' if shown == '' else shown})",
            **more.get(name, {}),
        )
    return sections


_METAVARS = {
    "model": "MODEL", "weights": "FILE", "data": "DATA", "memory": "8GiB", "plan_seconds": "S", "tolerance": "T",
    "lora": "rank=N", "artifacts": "CHIPS", "device": "DEVICE",
}  # fmt: skip
