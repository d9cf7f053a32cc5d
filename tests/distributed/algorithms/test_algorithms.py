"""Every algorithm: its published values, its weights, and what it refuses."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from pcp.distributed.algorithms import (
    ALGORITHMS,
    Algorithm,
    DataParallel,
    DecoupledDiLoCo,
    DiLoCo,
    InvalidAlgorithm,
    MuLoCo,
    NoLoCo,
    SparseLoCo,
    StreamingDiLoCo,
    Topology,
    overlaps,
    segment_steps,
    share_of_steps,
)
from pcp.distributed.compression import codec
from pcp.distributed.coordinator import config as _registers  # noqa: F401 - makes the algorithms storable
from pcp.distributed.coordinator.log.serialisation import decode, encode
from pcp.distributed.merging import MERGES
from pcp.optimizers import Muon, adamw

EXAMPLES: list[Algorithm] = [
    DataParallel(),
    DiLoCo(30),
    StreamingDiLoCo(30, 3, 2),
    DecoupledDiLoCo(24, 4, 2),
    SparseLoCo(15),
    MuLoCo(30),
    NoLoCo(10, 30),
]


def test_muloco_trains_matrices_with_muon_and_the_rest_with_the_run_s_own_optimizer() -> None:
    own = adamw(1e-3, weight_decay=0.3)
    found = MuLoCo(30).inner_optimizer(own)
    assert isinstance(found, Muon)
    assert (found.rest, found.weight_decay) == (own, 0.3)
    assert all(
        each.inner_optimizer(own) is own for each in EXAMPLES if not isinstance(each, DataParallel | MuLoCo)
    )


@dataclass(frozen=True)
class Done:
    steps: int
    tokens: int


@pytest.mark.parametrize("algorithm", EXAMPLES, ids=lambda each: type(each).__name__)
def test_an_algorithm_is_stored_and_names_codecs_and_a_merge_that_exist(algorithm: Algorithm) -> None:
    assert decode(encode(algorithm)) == algorithm
    assert type(algorithm) in ALGORITHMS.values()
    assert codec(algorithm.upload).name == algorithm.upload
    assert codec(algorithm.download).name == algorithm.download
    assert algorithm.merge in MERGES
    steps = algorithm.lease_steps if isinstance(algorithm, NoLoCo) else algorithm.inner_steps
    assert segment_steps(algorithm) * algorithm.fragments == steps
    assert (
        (algorithm.topology is Topology.PAIRS) == isinstance(algorithm, NoLoCo) == bool(algorithm.exchanges())
    )
    assert overlaps(algorithm) == (algorithm.delay > 0)
    assert algorithm.weights([Done(3, 300), Done(3, 300)]) == (0.5, 0.5)


def test_every_algorithm_has_an_example() -> None:
    assert {type(each) for each in EXAMPLES} == set(ALGORITHMS.values())


def test_what_differs_is_as_published() -> None:
    streaming, decoupled, sparse = StreamingDiLoCo(30), DecoupledDiLoCo(30), SparseLoCo(30)
    assert (streaming.upload, streaming.mixing, streaming.outer_momentum) == ("int4", 0.5, 0.9)
    assert (decoupled.mixing, decoupled.late, decoupled.merge) == (0.0, "carry", "radial")
    assert (sparse.residual_decay, sparse.outer_learning_rate, sparse.outer_momentum) == (0.95, 1.0, 0.0)
    assert sparse.upload == "top-k"
    assert [each.pushes_gradients for each in EXAMPLES] == [True] + 6 * [False]


def test_decoupled_weighs_by_tokens_and_tokens_a_step() -> None:
    weights = DecoupledDiLoCo(30).weights([Done(10, 100), Done(10, 200), Done(20, 200), Done(0, 0)])
    assert weights == pytest.approx((1000 / 7000, 4000 / 7000, 2000 / 7000, 0.0))


@pytest.mark.parametrize("algorithm", [DataParallel(), StreamingDiLoCo(30), SparseLoCo(30)])
def test_others_weigh_by_tokens(algorithm: Algorithm) -> None:
    assert algorithm.weights([Done(10, 300), Done(30, 900)]) == (0.25, 0.75)
    assert algorithm.weights([Done(10, 900), Done(10, 300)]) == (0.75, 0.25)
    assert algorithm.weights([Done(0, 0), Done(0, 0)]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (SparseLoCo, {"inner_steps": 0}, "inner_steps is 0; it must be at least 1"),
        (
            StreamingDiLoCo,
            {"inner_steps": 30, "fragments": 4},
            "fragments is 4; it must be at least 1 and divide inner_steps, which is 30",
        ),
        (
            DecoupledDiLoCo,
            {"inner_steps": 30, "fragments": 0},
            "fragments is 0; it must be at least 1 and divide inner_steps, which is 30",
        ),
        (
            StreamingDiLoCo,
            {"inner_steps": 30, "fragments": 3, "delay": 10},
            "delay is 10; it must be at least 0 and below the 10 inner steps of a segment (inner_steps / fragments)",
        ),
        (
            StreamingDiLoCo,
            {"inner_steps": 30, "mixing": 1.0},
            "mixing is 1.0; it must be at least 0 and below 1",
        ),
        (SparseLoCo, {"inner_steps": 30, "outer_learning_rate": float("nan")}, "it must be positive"),
        (
            DecoupledDiLoCo,
            {"inner_steps": 30, "outer_momentum": -0.1},
            "outer_momentum is -0.1; it must be at least 0 and below 1",
        ),
        (
            DataParallel,
            {"residual_decay": 1.5},
            "residual_decay is 1.5; it must be at least 0 and at most 1",
        ),
    ],
)
def test_a_hyper_parameter_out_of_range_is_named(make: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidAlgorithm, match=re.escape(message)):
        make(**arguments)


def test_the_share_of_steps_is_their_weighted_mean_of_h_and_at_most_one() -> None:
    algorithm = DiLoCo(10)
    assert share_of_steps(algorithm, (10, 10), (0.5, 0.5)) == 1
    assert share_of_steps(algorithm, (2, 10), (0.75, 0.25)) == pytest.approx(0.4)
    assert share_of_steps(algorithm, (20, 30), (0.5, 0.5)) == 1  # carried pushes are of more than one round
