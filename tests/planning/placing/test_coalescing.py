"""Copies between devices are coalesced where that is cheaper, as a meter that charges for operations and copies says."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.backends.metered import CHIP, HOST, METER, charged, costs_of
from tests.planning.placing.test_cheapest import everything

import pcp
from pcp import backends
from pcp.backends import Placement, Target, registry
from pcp.backends.regions import RegionsExecutable, compiled_in_places
from pcp.ir import Program
from pcp.planning.placing.cheapest import cheapest
from pcp.planning.placing.operations import operations_in
from pcp.tensor import Tensor

SIZE = 4
ARRAYS = [np.random.default_rng(seed).standard_normal((SIZE, SIZE), np.float32) for seed in range(2)]


@pytest.fixture(autouse=True)
def metered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    backends.register_backend("metered", "tests.backends.metered:MeteredBackend")
    yield
    METER.reset()


def traced(function: object) -> Program:
    return pcp.trace(function, *[pcp.spec((SIZE, SIZE), "f32")] * 2)  # type: ignore[arg-type]  # any function of two Tensors


def with_round_trip(x: Tensor, w: Tensor) -> Tensor:
    """The chip's products, with one operation between them that it is slow at."""
    return pcp.tanh(x @ w) @ w


def with_sines(x: Tensor, w: Tensor) -> Tensor:
    """Between two sines, at which the chip is far slower than a copy takes, stands an operation that it is faster at."""
    return pcp.sin(pcp.tanh(pcp.sin(x @ w))) @ w


def run_on_meter(
    program: Program, home: Target, places: dict[str, str]
) -> tuple[int, float, list[np.ndarray]]:
    """Copies, seconds and results of a call."""
    executable = compiled_in_places(program, home, Placement.of(places))
    made = charged(executable, program, home, ARRAYS)
    planned = len(executable.copies) if isinstance(executable, RegionsExecutable) else 0
    assert planned == len(METER.copies)
    return len(METER.copies), METER.seconds, [np.asarray(each) for each in made]


def keys_of(program: Program, *names: str) -> dict[str, str]:
    found = operations_in(program)
    return {key: "metered:host:0" for key, name in zip(found.keys, found.names, strict=True) if name in names}


def found_places(program: Program) -> dict[str, str]:
    costs = costs_of(program, CHIP, HOST)
    best = cheapest(costs)
    assert best is not None
    keys = operations_in(program).keys
    return {key: "metered:host:0" for key, place in zip(keys, best, strict=True) if place}


@pytest.mark.parametrize(
    ("function", "before", "copies"),
    [(with_round_trip, ("tanh",), (2, 0)), (with_sines, ("sine",), (4, 2))],
)
def test_a_round_trip_becomes_operations_on_the_better_side(
    function: object, before: tuple[str, ...], copies: tuple[int, int]
) -> None:
    """From there and back for one operation to none; from two round trips for sines to one, with what stands between them."""
    program, home = traced(function), Target.of("metered:chip:0")
    plain = run_on_meter(program, home, {})
    first = run_on_meter(program, home, keys_of(program, *before))
    best = run_on_meter(program, home, found_places(program))
    assert (first[0], best[0]) == copies
    assert best[1] < first[1]
    assert best[1] <= plain[1]
    for one, two, three in zip(plain[2], first[2], best[2], strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def random_program(seed: int) -> Program:
    rng = np.random.default_rng(seed)

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        values = [x, w]
        for _ in range(5):
            one, two = (values[index] for index in rng.integers(0, len(values), 2))
            made = (one @ two, pcp.tanh(one), pcp.sin(one), one + two)
            values.append(made[rng.integers(4)])
        return values[-1], values[-2]

    return traced(function)


@pytest.mark.parametrize("seed", range(12))
def test_what_the_meter_charges_is_what_was_expected_and_the_least_of_all_placements(seed: int) -> None:
    program, home = random_program(seed), Target.of("metered:chip:0")
    costs, keys = costs_of(program, CHIP, HOST), operations_in(program).keys
    assert len(keys) <= 6
    charges = {}
    for places in everything(costs):
        _, seconds, _ = run_on_meter(
            program, home, {key: "metered:host:0" for key, place in zip(keys, places, strict=True) if place}
        )
        charges[places] = seconds
        assert seconds == pytest.approx(costs.of(places))
    best = cheapest(costs)
    assert best is not None
    assert charges[best] == min(charges.values())
