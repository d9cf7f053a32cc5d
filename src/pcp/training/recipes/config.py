"""What a training run is: one flat value, from defaults, a TOML file and the command line, kept as JSON in the run's folder."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError, nearest

_NOT_NEGATIVE = (
    "workers",
    "evaluate_every",
    "checkpoint_every",
    "clip_norm",
    "weight_decay",
    "final_learning_rate",
    "tolerance",
    "plan_seconds",
    "seed",
    "context",
    "size",
    "audit_tolerance",
)

OWN = -1
"""A number that is not set, and follows from the algorithm or from the length of the run; an empty text says the same."""

FEW_STEPS = 200
"""A run of fewer reports the loss of each, where nothing else is set."""

LONGEST_WARMUP = 100
"""Steps of the warm-up where none are set: nanoGPT's number for a small character model."""

OPTIMIZER_CHOICES = ("adamw", "adam", "lion", "muon", "adafactor", "sgd", "nesterov")
WITH_MOMENTUM = ("muon", "sgd", "nesterov")

ALGORITHM_CHOICES = (
    "fragments",
    "delay",
    "mixing",
    "outer_learning_rate",
    "outer_momentum",
    "gossip_rate",
    "upload",
    "download",
    "merge",
    "quorum",
)
"""The settings for which it may."""


MEANINGS = {
    "model": "name of a model, such as gpt2 or llama-1b; the file of a loss; or a folder that transformers wrote",
    "weights": "initial weights of a loss from a file: safetensors or .npz, or `random`",
    "data": "`shakespeare`; files, a folder or pattern of texts, JSON lines, tables, token numbers, samples; or shards",
    "field": "of JSON lines, JSON and tables: the one that holds the text, or messages",
    "tokenizer": "`characters`, `bytes`, `bpe` (byte pairs), a tokenizer.json or a folder with one; these two need an extra",
    "chat_template": "of messages: empty for that of the tokenizer's folder, `plain`, or a file in Jinja (extra `chat`)",
    "vocabulary": "tokens that `bpe` learns from the data",
    "steps": "inner steps of each worker",
    "batch": "sequences in a batch; a loss from a file fixes this number",
    "context": "tokens in a window, for a model from a folder; 0: what it was made for, at most 512",
    "size": "pixels of a side of images, for dit-nano, dit-s and unet-nano; 0: as arrays have it, of files 32",
    "dtype": "of the parameters and moments of a model from a folder: f32, or bf16; empty: f32",
    "lora": "trains low-rank matrices beside the weights of a model from a folder: rank=8,alpha=16,targets=q_proj,v_proj",
    "dropout": "train a model from a folder with the dropout that its config.json names; validation has none",
    "accumulate": "number of parts in which a batch is computed, one after another, to save memory; a divisor of --batch",
    "remat": "what is kept for the backward pass: a policy such as dots_saveable",
    "memory": "bytes that a step may take, such as 40GiB; to fit, it is computed in parts and values again; empty: all",
    "optimizer": "adamw, adam, lion, muon (with adamw for what is no matrix), adafactor, sgd or nesterov",
    "momentum": "of muon, sgd and nesterov; by default the optimizer's own",
    "learning_rate": "largest learning rate; in a file of settings also points: [[0, 0.0], [100, 1e-3], [2000, 1e-4]]",
    "final_learning_rate": "learning rate at the end of the schedule",
    "schedule": "of the learning rate after its rise: `cosine`, `linear`, `constant`, or `wsd`, which falls in the last tenth",
    "warmup_steps": "steps in which the learning rate rises linearly",
    "weight_decay": "weight decay of matrices; adam has none; in a file of settings also points, for adamw and lion",
    "groups": "parameters with a share of the rate, a decay of their own, or none: '*.bias decay=0', 'wte* frozen'; repeatable",
    "clip_norm": "largest global norm of the gradient; 0 does not clip",
    "seed": "seed of the parameters, of the data order and of dropout",
    "evaluate_every": "steps between evaluations on the validation data; 0 evaluates only at the end",
    "log_every": "steps between reports of the loss, which is the mean of these steps; runs of one process",
    "checkpoint_every": "steps between checkpoints; 0 writes one only at the end",
    "device": "where steps run, such as cpu:0 or cuda:0",
    "devices": "several that compute each step together, such as cuda:0-3, in the place of --device; runs of one process",
    "layout": "how a step lies over --devices: dp, zero1 or fsdp; else the first of these that fits in memory",
    "tolerance": "largest relative error of a step, such as 1e-2; PCP searches for the fastest way; 0 does not search",
    "plan_seconds": "seconds for that search; earlier measurements are reused",
    "workers": "Worker processes that pcp train starts, each for so many steps; 0 trains in this process; more may join",
    "algorithm": "how workers are merged: data-parallel, diloco, streaming, decoupled, sparse, muloco or noloco",
    "inner_steps": "steps of a worker between two outer steps of a fragment, or two exchanges (H)",
    "fragments": "number of parts that are merged in turn (P), a divisor of --inner-steps; for streaming, decoupled",
    "delay": "steps that a worker trains while its update is merged, before it takes the result; below H / P",
    "mixing": "share of its own parameters that a worker keeps when it takes a merged result; for streaming",
    "outer_learning_rate": "learning rate of the outer Nesterov step",
    "outer_momentum": "momentum of the outer Nesterov step",
    "gossip_rate": "how strongly an exchange draws two workers together",
    "upload": "compression of updates from workers: f32, bf16, int8, int4 or top-k; int4 takes an eighth of the bytes",
    "download": "compression of updates to workers; the Shepherd keeps the rounding error and sends it later",
    "merge": "how updates are merged: default and trimmed tolerate some hostile workers, mean does not",
    "quorum": "share of a round's data that must arrive before the round may close, such as 0.75",
    "shares": "of a round: `measured` gives a slow worker less; `equal` gives all as much: the same numbers in every run",
    "artifacts": "chips for which the programs are compiled ahead, for pcp worker --artifact-only: llvm-cpu:generic,vulkan",
    "audit_rate": "share of the work that another worker repeats to check it, such as 0.05; 0 checks nothing",
    "audit_tolerance": "largest relative difference between two results of the same work; 0 is right for equal hardware",
}
"""What each setting is, but for those that no command takes: beta1 and beta2, the decays of moments; learning_rates,
weight_decays and batches, the points of settings that are given as such; and wire, the
limits of a Shepherd's connections by the names in `WireLimits`, where those that are not named are as there."""


GROUP = "rate, a factor of the learning rate, decay, a weight decay, or both; or frozen"
_GROUP_EXAMPLE = (
    '{ rate = 0.1, decay = 0.0 } or "frozen" in a file of settings, rate=0.1 decay=0 or frozen in --group'
)

SCHEDULES = ("cosine", "linear", "constant", "wsd")

FROZEN = "frozen"
"""What is said of a group of parameters that stay as they are."""

Points = tuple[tuple[int, float], ...]
"""Steps and the values from there on."""

_SCHEDULED = {"learning_rate": "learning_rates", "weight_decay": "weight_decays", "batch": "batches"}
"""Settings that may be points instead of a number, and where these are kept beside it."""


class InvalidTrainingConfig(PCPError):
    """A setting that does not exist, has the wrong type, or makes no sense."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """The settings of a run. The defaults are nanoGPT's recipe for a small character model on a CPU.

    `MEANINGS` says what each is. From `fragments` to `quorum` the default, -1 or empty, is the algorithm's own choice.

    Raises:
        InvalidTrainingConfig: a number is out of its range.
    """

    model: str = "gpt2-nano"
    weights: str = ""
    data: str = "shakespeare"
    field: str = ""
    tokenizer: str = "characters"
    chat_template: str = ""
    vocabulary: int = 1024
    steps: int = 2000
    batch: int = 12
    context: int = 0
    size: int = 0
    dtype: str = ""
    lora: str = ""
    dropout: bool = False
    accumulate: int = 1
    remat: str = "everything"
    memory: str = ""
    optimizer: str = "adamw"
    momentum: float = float(OWN)
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    warmup_steps: int = OWN
    beta1: float = 0.9
    beta2: float = 0.99
    schedule: str = "cosine"
    weight_decay: float = 0.1
    groups: dict[str, Any] = dataclasses.field(default_factory=dict)
    clip_norm: float = 1.0
    seed: int = 1337
    evaluate_every: int = 250
    log_every: int = OWN
    checkpoint_every: int = 500
    device: str = "cpu:0"
    devices: str = ""
    layout: str = ""
    tolerance: float = 0.0
    plan_seconds: float = 60.0
    workers: int = 0
    algorithm: str = "diloco"
    inner_steps: int = 50
    fragments: int = OWN
    delay: int = OWN
    mixing: float = float(OWN)
    outer_learning_rate: float = float(OWN)
    outer_momentum: float = float(OWN)
    gossip_rate: float = float(OWN)
    upload: str = ""
    download: str = ""
    merge: str = ""
    quorum: float = float(OWN)
    shares: str = "measured"
    artifacts: str = ""
    audit_rate: float = 0.0
    audit_tolerance: float = 0.0
    learning_rates: Points = ()
    weight_decays: Points = ()
    batches: Points = ()
    wire: dict[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "inner_steps"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        _require("log_every", self.log_every, self.log_every >= 1 or self.log_every == OWN, "at least 1")
        for name in _NOT_NEGATIVE:
            _require(name, getattr(self, name), getattr(self, name) >= 0, "at least 0")
        for name in ("beta1", "beta2"):
            _require(name, getattr(self, name), 0 <= getattr(self, name) < 1, "at least 0 and below 1")
        _require("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0")
        known = ", ".join(OPTIMIZER_CHOICES)
        _require("optimizer", self.optimizer, self.optimizer in OPTIMIZER_CHOICES, f"one of {known}")
        of_these = f"at least 0 and below 1, with an optimizer that has one: {', '.join(WITH_MOMENTUM)}"
        fits = self.optimizer in WITH_MOMENTUM and 0 <= self.momentum < 1
        _require("momentum", self.momentum, self.momentum == OWN or fits, of_these)
        below = f"at least 0 and below steps, which is {self.steps}; leave it out for a tenth of them"
        _require("warmup_steps", self.warmup_steps, OWN <= self.warmup_steps < self.steps, below)
        divides = all(
            size % self.accumulate == 0 for size in (self.batch, *(size for _, size in self.batches))
        )
        fits = not self.weight_decays or (self.optimizer in ("adamw", "lion") and self.algorithm != "muloco")
        _require(
            "weight_decay", self.weight_decays, fits, "one number, but with the optimizers adamw and lion"
        )
        _require("accumulate", self.accumulate, divides, f"a divisor of batch, which is {self.batch}")
        _require(
            "batch", self.batches, not (self.batches and self.workers), "one number in a run with workers"
        )
        _require(
            "audit_rate", self.audit_rate, 0 <= self.audit_rate <= 1, "a share of the leases, from 0 to 1"
        )
        for pattern, given in self.groups.items():
            _require(f"the group {pattern!r}", given, _is_group(given), f"{GROUP}, as {_GROUP_EXAMPLE}")
        fits = not self.groups or not self.workers or self.algorithm != "muloco"
        _require(
            "algorithm",
            self.algorithm,
            fits,
            "another for groups: workers of muloco have an optimizer of their own",
        )
        decays = any(isinstance(given, dict) and "decay" in given for given in self.groups.values())
        _require(
            "weight_decay",
            self.weight_decays,
            not (self.weight_decays and decays),
            "one number, where a group has a decay",
        )
        named = " or ".join(SCHEDULES)
        _require("schedule", self.schedule, self.schedule in SCHEDULES, named)
        _require("shares", self.shares, self.shares in ("measured", "equal"), "measured or equal")
        _require("vocabulary", self.vocabulary, self.vocabulary >= 256, "at least 256, one for each byte")

    @property
    def warmup(self) -> int:
        """Steps of the linear rise, whether they are set or not."""
        unset = self.warmup_steps == OWN
        return min(LONGEST_WARMUP, self.steps // 10) if unset else self.warmup_steps

    @property
    def report_every(self) -> int:
        """Steps between reports of the loss, whether they are set or not."""
        few = 1 if self.steps < FEW_STEPS else 10
        return few if self.log_every == OWN else self.log_every

    def replaced(self, **settings: Any) -> "TrainingConfig":
        """The same run with other settings.

        Raises:
            InvalidTrainingConfig: a setting does not exist or has the wrong type.
        """
        settings = _with_points(settings)
        fields = {each.name: each.type for each in dataclasses.fields(self)}
        for name, value in settings.items():
            if name not in fields:
                raise InvalidTrainingConfig(
                    f"there is no setting {name!r}{nearest(name, fields)}; choose one of {', '.join(fields)}"
                )
            kind = type(getattr(self, name))
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise InvalidTrainingConfig(f"{name} is {value!r}; expected a value of type {kind.__name__}")
        typed = {name: type(getattr(self, name))(value) for name, value in settings.items()}
        return dataclasses.replace(self, **typed)

    def to_json(self) -> str:
        """The settings as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> "TrainingConfig":
        """The settings that `to_json` wrote.

        Raises:
            InvalidTrainingConfig: the text is something else.
        """
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidTrainingConfig(f"the settings of the run are not JSON: {error}") from None
        if not isinstance(content, dict):
            raise InvalidTrainingConfig("the settings of the run are not a JSON object")
        return TrainingConfig().replaced(**content)


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, to be given to `TrainingConfig.replaced`.

    Raises:
        InvalidTrainingConfig: the file is missing or no TOML.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidTrainingConfig(f"there is no file {path}; give a TOML file of settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidTrainingConfig(f"{path} is not a TOML file: {error}") from None
    if isinstance(files := settings.get("data"), list) and all(isinstance(each, str) for each in files):
        settings["data"] = ",".join(files)
    return settings


def _with_points(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings in which numbers that are given as points are the largest of them, and for a batch the first."""
    told = dict(settings)
    for name, kept in _SCHEDULED.items():
        if isinstance(value := settings.get(name), list):
            told[kept] = points = _points(name, value)
            told[name] = points[0][1] if name == "batch" else max(number for _, number in points)
        elif settings.get(kept):
            told[kept] = _points(name, settings[kept])
        elif name in settings:
            told[kept] = ()
    return told


def _points(name: str, value: Any) -> Points:
    """Points as a file of settings has them: pairs of a step and a number, by rising steps, the first at step 0."""
    kind, least = (int, 1) if name == "batch" else (float, 0)
    entries = value if isinstance(value, list | tuple) else [value]
    pairs = [tuple(each) if isinstance(each, list | tuple) else () for each in entries]
    valid = all(len(pair) == 2 and type(pair[0]) is int and type(pair[1]) in (int, kind) for pair in pairs)
    steps = [pair[0] for pair in pairs] if valid else []
    in_order = steps[:1] == [0] and steps == sorted(set(steps))
    if not in_order or not all(least <= number < float("inf") for _, number in pairs):
        example = "[[0, 8], [1000, 16]]" if name == "batch" else "[[0, 0.0], [100, 1e-3], [2000, 1e-4]]"
        raise InvalidTrainingConfig(
            f"{name} is {value}; expected a number of at least {least}, or points by rising steps, the first at step 0: "
            f"{example}"
        )
    return tuple((step, kind(number)) for step, number in pairs)


def _is_group(given: object) -> bool:
    """Whether something is what a group of parameters can be given."""
    if not isinstance(given, dict):
        return given == FROZEN
    numbers = [type(each) in (int, float) and 0 <= each < float("inf") for each in given.values()]
    return bool(given) and given.keys() <= {"rate", "decay"} and all(numbers)


def read_group(text: str) -> tuple[str, Any]:
    """A pattern of names and what its parameters get, as a command is given them: `*.bias decay=0`, `wte* frozen`.

    Raises:
        InvalidTrainingConfig: it is something else.
    """
    pattern, *words = text.split() or [""]
    try:
        settings: Any = (
            FROZEN if words == [FROZEN] else {n: float(v) for n, v in (w.split("=") for w in words)}
        )
    except ValueError:
        settings = None
    if not pattern or "=" in pattern or not _is_group(settings):
        raise InvalidTrainingConfig(
            f"the group is {text!r}; expected a pattern of names, then {GROUP}, as '*.bias decay=0'"
        )
    return pattern, settings


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise InvalidTrainingConfig(f"{name} is {value}; expected {expected}")


def is_in_pairs(config: TrainingConfig) -> bool:
    """Whether workers of a run exchange in pairs, so that the Shepherd merges only at the end."""
    return bool(config.workers) and config.algorithm == "noloco"
