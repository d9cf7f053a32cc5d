"""From settings to algorithms: what is the algorithm's own, and what no algorithm can be."""

from typing import Any

import pytest

from pcp.distributed.algorithm_choice import algorithm_of, check_settings, quorum_of
from pcp.distributed.algorithms import (
    ALGORITHMS,
    DataParallel,
    DecoupledDiLoCo,
    DiLoCo,
    NoLoCo,
    SparseLoCo,
    StreamingDiLoCo,
)
from pcp.training.recipes.config import ALGORITHM_CHOICES, InvalidTrainingConfig, TrainingConfig


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, DiLoCo(50, merge="default")),
        ({"upload": "int4", "merge": "trimmed"}, DiLoCo(50, upload="int4", merge="trimmed")),
        (
            {"outer_momentum": 0.0, "outer_learning_rate": 1.0, "merge": "mean"},
            DiLoCo(50, 1.0, 0.0, merge="mean"),
        ),
        (
            {"algorithm": "streaming", "inner_steps": 40},
            StreamingDiLoCo(40, mixing=0.0, outer_learning_rate=0.7, merge="default"),
        ),
        (
            {
                "algorithm": "streaming",
                "fragments": 5,
                "delay": 0,
                "mixing": 0.5,
                "outer_learning_rate": 0.4,
                "download": "bf16",
            },
            StreamingDiLoCo(50, 5, 0, 0.5, 0.4, download="bf16", merge="default"),
        ),
        ({"algorithm": "decoupled", "delay": 3}, DecoupledDiLoCo(50, delay=3)),
        ({"algorithm": "sparse", "upload": "top-k:32"}, SparseLoCo(50, upload="top-k:32", merge="default")),
        ({"algorithm": "data-parallel", "inner_steps": 7}, DataParallel()),
        (
            {"algorithm": "noloco", "gossip_rate": 0.5, "steps": 100},
            NoLoCo(50, 100, gossip_rate=0.5, merge="default"),
        ),
    ],
)
def test_what_settings_leave_open_is_the_algorithm_s_or_proved_better(
    settings: dict[str, Any], expected: Any
) -> None:
    assert algorithm_of(TrainingConfig(workers=2).replaced(**settings)) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"algorithm": "gossip"},
            "algorithm is 'gossip'; expected one of data-parallel, diloco, streaming, decoupled, sparse",
        ),
        (
            {"fragments": 2},
            "fragments is 2, but the algorithm diloco does not use it; leave it out, or choose "
            "--algorithm streaming or decoupled",
        ),
        (
            {"algorithm": "decoupled", "mixing": 0.5},
            "mixing is 0.5, but the algorithm decoupled does not use it",
        ),
        (
            {"algorithm": "sparse", "outer_momentum": 0.9},
            "choose --algorithm diloco or streaming or decoupled",
        ),
        (
            {"algorithm": "data-parallel", "outer_learning_rate": 1.0},
            "the algorithm data-parallel does not use it",
        ),
        (
            {"algorithm": "streaming", "fragments": 3},
            "the algorithm streaming cannot run with these settings: fragments is 3; it must be at least 1 and divide "
            "inner_steps, which is 50",
        ),
        (
            {"algorithm": "streaming", "delay": 25},
            r"delay is 25; it must be at least 0 and below the 25 inner steps of a segment \(inner_steps / frag",
        ),
        ({"outer_momentum": 1.0}, "outer_momentum is 1.0; it must be at least 0 and below 1"),
        ({"outer_learning_rate": 0.0}, "outer_learning_rate is 0.0; it must be positive"),
        ({"upload": "int3"}, "upload is not a codec: codec 'int3' was given; expected one of f32"),
        ({"download": "int4:x"}, "download is not a codec: codec 'int4:x': option 'x' was given"),
        ({"merge": "vote"}, "merge is 'vote'; expected one of centred, clip, default, mean, radial, trimmed"),
        ({"inner_steps": 7}, "inner_steps is 7; expected a divisor of steps, which is 2000"),
        ({"quorum": 0.0}, "quorum is 0.0; expected a part of a round's data: above 0, at most 1"),
        ({"quorum": 1.5}, "quorum is 1.5; expected a part"),
        ({"algorithm": "streaming", "quorum": 0.5}, "the algorithm streaming always waits for every worker"),
        ({"algorithm": "noloco", "quorum": 0.5}, "the algorithm noloco always waits for every worker"),
        (
            {"algorithm": "noloco", "audit_rate": 0.1},
            "audit_rate is 0.1, but workers of noloco depend on one another, so nobody can repeat",
        ),
        (
            {"algorithm": "noloco", "steps": 75},
            "lease_steps is 75; it must be a multiple of inner_steps, which is 50",
        ),
        (
            {"algorithm": "noloco", "outer_momentum": 0.9},
            r"gossip_rate is 0.7; it must be above 0 and below 2 \(1 - outer_momentum\^2\), which is 0.38, or the workers'",
        ),
        (
            {"gossip_rate": 0.7},
            "the algorithm diloco does not use it; leave it out, or choose --algorithm noloco",
        ),
    ],
)
def test_what_no_algorithm_can_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTrainingConfig, match=message):
        check_settings(TrainingConfig(workers=2).replaced(**settings))


def test_only_decoupled_runs_go_on_without_the_slowest_unless_asked() -> None:
    config = TrainingConfig(workers=2)
    assert {name: quorum_of(config.replaced(algorithm=name)) for name in ALGORITHMS} == {
        "data-parallel": 1.0,
        "diloco": 1.0,
        "streaming": 1.0,
        "decoupled": 0.5,
        "sparse": 1.0,
        "muloco": 1.0,
        "noloco": 1.0,
    }
    assert quorum_of(config.replaced(quorum=0.75)) == 0.75


@pytest.mark.parametrize("name", ["algorithm", "shares", *ALGORITHM_CHOICES])
def test_settings_of_a_distributed_run_need_workers(name: str) -> None:
    texts = {
        "algorithm": "streaming",
        "shares": "equal",
        "upload": "int4",
        "download": "int8",
        "merge": "clip",
    }
    value: Any = texts.get(name, 2)
    message = f"{name} is {value}.*, but workers is 0: a single process merges nothing; leave it out, or add"
    with pytest.raises(InvalidTrainingConfig, match=message):
        check_settings(TrainingConfig().replaced(**{name: value}))
    check_settings(TrainingConfig())
