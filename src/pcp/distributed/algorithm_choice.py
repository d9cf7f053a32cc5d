"""From the settings of a run to its training algorithm: which settings each algorithm has, and what they are if nobody says."""

import dataclasses
from types import MappingProxyType
from typing import Any

from pcp.distributed.algorithms import ALGORITHMS, Algorithm, InvalidAlgorithm, Topology
from pcp.distributed.compression import InvalidCodec, UnknownCodec, codec
from pcp.distributed.merging import MERGES
from pcp.distributed.wire import WireLimits
from pcp.training.recipes.config import ALGORITHM_CHOICES, OWN, InvalidTrainingConfig, TrainingConfig

_QUORUM = {"decoupled": 0.5}

_ROBUST = {"merge": "default"}
_MEASURED: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "diloco": _ROBUST,
        "streaming": _ROBUST | {"mixing": 0.0, "outer_learning_rate": 0.7},
        "sparse": _ROBUST,
        "muloco": _ROBUST,
        "noloco": _ROBUST,
    }
)
"""What a run takes where its settings say nothing, other than the paper, because it proved better."""


def algorithm_of(config: TrainingConfig) -> Algorithm:
    """The algorithm that settings describe; what they leave open is what proved best, or as in the algorithm's description.

    Raises:
        InvalidTrainingConfig: a name is unknown, the algorithm has no such setting, or a setting is out of its range.
    """
    if config.algorithm not in ALGORITHMS:
        raise InvalidTrainingConfig(
            f"algorithm is {config.algorithm!r}; expected one of {', '.join(ALGORITHMS)}"
        )
    kind = ALGORITHMS[config.algorithm]
    choices = {name: getattr(config, name) for name in ALGORITHM_CHOICES if name != "quorum"}
    settings = {name: value for name, value in choices.items() if value not in (OWN, "")}
    for name, value in settings.items():
        if name not in _settings_of(kind):
            others = [each for each, other in ALGORITHMS.items() if name in _settings_of(other)]
            raise InvalidTrainingConfig(
                f"{name} is {value}, but the algorithm {config.algorithm} does not use it; leave it out, or choose "
                f"--algorithm {' or '.join(others)}"
            )
    _check_names(settings)
    lengths = {"inner_steps": config.inner_steps, "lease_steps": config.steps}
    steps = {name: length for name, length in lengths.items() if name in _settings_of(kind)}
    try:
        algorithm: Algorithm = kind(**steps, **(_MEASURED.get(config.algorithm, {}) | settings))
    except InvalidAlgorithm as error:
        raise InvalidTrainingConfig(
            f"the algorithm {config.algorithm} cannot run with these settings: {error}"
        ) from None
    if algorithm.topology is Topology.PAIRS and config.audit_rate:
        raise InvalidTrainingConfig(
            f"audit_rate is {config.audit_rate}, but workers of {config.algorithm} depend on one another, so nobody can repeat "
            "what one of them did; leave it out, or choose --algorithm diloco"
        )
    if config.steps % algorithm.inner_steps:
        raise InvalidTrainingConfig(
            f"inner_steps is {algorithm.inner_steps}; expected a divisor of steps, which is {config.steps}"
        )
    return algorithm


def quorum_of(config: TrainingConfig) -> float:
    """The part of a round's data with which it may close: all, where neither the settings nor the algorithm say less.

    Raises:
        InvalidTrainingConfig: it is no part.
    """
    if config.quorum == OWN:
        return _QUORUM.get(config.algorithm, 1.0)
    if not 0 < config.quorum <= 1:
        raise InvalidTrainingConfig(
            f"quorum is {config.quorum}; expected a part of a round's data: above 0, at most 1"
        )
    if config.quorum < 1 and config.algorithm in ("streaming", "noloco"):
        raise InvalidTrainingConfig(
            f"quorum is {config.quorum}, but the algorithm {config.algorithm} always waits for every worker; "
            "leave it out, or choose --algorithm decoupled, which merges late updates"
        )
    return config.quorum


def check_settings(config: TrainingConfig) -> None:
    """Refuse settings that no algorithm has together, and those of a distributed run where there are no workers.

    Raises:
        InvalidTrainingConfig: some are.
        BadWireLimits: the table `wire` holds something else than limits.
    """
    WireLimits.of(config.wire)
    _check_devices(config)
    if config.workers:
        algorithm_of(config)
        quorum_of(config)
        return
    defaults = TrainingConfig()
    for name in ("algorithm", "shares", *ALGORITHM_CHOICES):
        if getattr(config, name) != getattr(defaults, name):
            raise InvalidTrainingConfig(
                f"{name} is {getattr(config, name)}, but workers is 0: a single process merges nothing; "
                "leave it out, or add --workers 2"
            )


def _check_devices(config: TrainingConfig) -> None:
    if config.layout and not config.devices:
        raise InvalidTrainingConfig(
            f"layout is {config.layout}, and devices is empty; say which compute together, as --devices cuda:0-1"
        )
    for name, kept in (("workers", 0), ("tolerance", 0.0), ("accumulate", 1)):
        if config.devices and getattr(config, name) != kept:
            raise InvalidTrainingConfig(
                f"devices is {config.devices}, and {name} is {getattr(config, name)}; steps of several devices are for one "
                f"process, as they are written, and of the whole batch so far: leave {name} out, or give one device"
            )


def _settings_of(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _check_names(settings: dict[str, Any]) -> None:
    for name in ("upload", "download"):
        try:
            codec(settings.get(name, "f32"))
        except (UnknownCodec, InvalidCodec) as error:
            raise InvalidTrainingConfig(f"{name} is not a codec: {error}") from None
    if settings.get("merge", "mean") not in MERGES:
        raise InvalidTrainingConfig(
            f"merge is {settings['merge']!r}; expected one of {', '.join(sorted(MERGES))}"
        )
