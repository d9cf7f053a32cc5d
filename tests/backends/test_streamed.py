"""Programs larger than their device: what lies there at once stays within a limit, and results are those of the whole."""

import json
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.metered import CHIP, HOST, METER
from tests.rewrite.deep_programs import training_step

import pcp
from pcp import nn
from pcp.backends import ExecutionFailed, OutOfMemory, Target, registry
from pcp.backends.regions import Copy, Drop, Run, compiled_in_places
from pcp.backends.regions.streamed import AWAY, StreamedExecutable
from pcp.backends.xla import XLABackend
from pcp.ir.tree import flatten
from pcp.planning.paths.checks import NotAPath
from pcp.rewrite.regions import HOME

WIDTH, LAYERS, ROWS = 64, 12, 32
WEIGHT = 4 * WIDTH * WIDTH


@pytest.fixture(autouse=True)
def metered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    registry.register_backend("metered", "tests.backends.metered:MeteredBackend")


def loss(weights: list[pcp.Tensor], x: pcp.Tensor) -> pcp.Tensor:
    for each in weights:
        x = pcp.tanh(nn.linear(x, each))
    return (x * x).mean()


def step() -> pcp.TrainingStep:
    """Twelve layers and AdamW: weights and moments take 576 KiB, a layer's activations 8."""
    form = pcp.trace(loss, [np.zeros((WIDTH, WIDTH), np.float32)] * LAYERS, pcp.spec((ROWS, WIDTH), "f32"))
    return pcp.training_step(form, pcp.optimizers.adamw(1e-2))


def arguments(program: pcp.TrainingStep) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    weights = [rng.normal(0, 0.1, (WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    return program.initial_state(weights), (rng.normal(size=(ROWS, WIDTH)).astype(np.float32),)


def there(program: pcp.Program, limit: int) -> StreamedExecutable:
    placement = pcp.streamed(program, Target.of("metered:chip"), limit).placement
    executable = compiled_in_places(program, Target.of("metered:host"), placement, cache=False)
    assert isinstance(executable, StreamedExecutable)
    return executable


def at_home(program: pcp.TrainingStep) -> list[Any]:
    host = Target.of("metered:host")
    leaves = program.flatten_arguments(*arguments(program))
    return [
        host.place(np.asarray(leaf), entry.spec)
        for leaf, entry in zip(leaves, program.arguments, strict=True)
    ]


def most_there(executable: StreamedExecutable) -> int:
    """The most bytes that lie on the device at once, counted from what a call does."""
    sizes: dict[int, int] = {}
    most, specs = 0, {}
    for each in executable.steps:
        if isinstance(each, Copy) and each.place == AWAY:
            sizes[each.number] = each.spec.bytes
        elif isinstance(each, Drop) and each.place == AWAY:
            del sizes[each.number]
        elif isinstance(each, Run):
            piece = executable._cut.cut.sequence[each.region]
            specs = {n: entry.spec.bytes for n, entry in zip(each.makes, piece.program.results, strict=True)}
            sizes |= specs
            most = max(most, sum(sizes.values()) + each.executable.memory.temporaries)
    assert not sizes  # nothing stays
    return most


@pytest.mark.share(3)
@pytest.mark.parametrize("limit", [4 * WEIGHT, 12 * WEIGHT, 24 * WEIGHT])
def test_a_step_larger_than_its_device_gives_what_the_whole_gives(limit: int) -> None:
    program = step()
    executable = there(program, limit)
    assert sum(entry.spec.bytes for entry in program.arguments) > 36 * WEIGHT
    assert most_there(executable) <= limit
    assert executable.memories[CHIP].peak <= limit
    whole = Target.of("metered:host").compile(program, cache=False).run(at_home(program))
    given = at_home(program)
    METER.reset()
    found = executable.run(given)
    assert METER.most[CHIP] <= limit
    assert not METER.lying[CHIP]
    assert all(each.device == HOST for each in found)
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert METER.copies == [
        (HOST, CHIP, each.spec.bytes) if each.place == AWAY else (CHIP, HOST, each.spec.bytes)
        for each in executable.copies
    ]


def copies_beside(executable: StreamedExecutable) -> list[tuple[int, int]]:
    """For each piece, how many copies a call begins before it ends, and how many of these beside it."""
    found: list[tuple[int, int]] = []
    running: set[int] | None = None
    count = 0
    for step in executable.steps:
        if isinstance(step, Run):
            running = {*step.takes, *step.makes}
            found.append((count, 0))
        elif running is not None and step.number in running:
            running = None  # the step waits for the piece
        elif running is not None and isinstance(step, Copy):
            found[-1] = (found[-1][0] + 1, found[-1][1] + 1)
        count += isinstance(step, Copy)
    return found


def test_copies_go_on_beside_pieces_within_the_limit() -> None:
    program, limit = step(), 24 * WEIGHT
    executable, given = there(program, limit), at_home(program)
    expected = copies_beside(executable)
    assert sum(beside for _, beside in expected) > 0.8 * len(executable.copies)
    pieces = iter(expected)
    METER.reset()
    late: list[int] = []

    def until_copied() -> None:
        """A piece ends only when everything was copied that a call copies beside it."""
        due, _ = next(pieces)
        with METER.changed:
            if not late and not METER.changed.wait_for(lambda: len(METER.copies) >= due, timeout=30):
                late.append(due)

    METER.inside = until_copied
    executable.run(given)
    METER.inside = lambda: None
    assert not late
    assert next(pieces, None) is None
    assert METER.most[CHIP] <= limit


def test_a_piece_that_fails_ends_the_call_with_its_error() -> None:
    program = step()
    executable, given = there(program, 24 * WEIGHT), at_home(program)

    def fails() -> None:
        raise ExecutionFailed("the chip stopped")

    METER.inside = fails
    with pytest.raises(ExecutionFailed, match="the chip stopped"):
        executable.run(given)
    METER.reset()


def test_equal_layers_are_equal_pieces_and_each_kind_is_compiled_once() -> None:
    """A GPT-2 of eight layers and one of twelve, each with its training step."""
    compiled: list[list[str]] = []
    pieces = []
    for layers in (8, 12):
        program = training_step(layers)
        METER.compiled.clear()
        executable = there(program, 160_000)
        pieces.append(sum(isinstance(each, Run) for each in executable.steps))
        compiled.append(list(METER.compiled))
    for each in compiled:
        assert len(set(each)) == len(each)
    assert (
        len(set(compiled[0]) ^ set(compiled[1])) == 2
    )  # what adds up the norms of the gradients of all layers
    assert len(compiled[0]) == len(compiled[1])
    assert 8 * len(compiled[1]) < pieces[1]


def random_program(seed: int) -> pcp.Program:
    """Operations on any values before them; results are some of all values, arguments among them, and one may come twice."""
    random = np.random.default_rng(seed)
    picks = random.integers(0, 1 << 30, (40, 3)).tolist()

    def function(*arguments: pcp.Tensor) -> tuple[pcp.Tensor, ...]:
        values = list(arguments)
        for first, second, kind in picks:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append((a @ b, a + b, pcp.tanh(a), a * 0.5)[kind % 4])
        return tuple(values[pick % len(values)] for pick, *_ in picks[:6])

    return pcp.trace(function, *[pcp.spec((8, 8), "f32")] * 5)


@given(st.integers(0, 1 << 30), st.integers(8, 24))
@settings(max_examples=10, deadline=None)
def test_random_programs_within_random_limits_give_the_bits_of_the_whole(seed: int, matrices: int) -> None:
    program, limit = random_program(seed), matrices * 8 * 8 * 4
    random = np.random.default_rng(seed)
    host = Target.of("metered:host")
    given = [host.place(random.normal(0, 0.3, each.spec.shape), each.spec) for each in program.arguments]
    wanted = host.compile(program, cache=False).run(given)
    executable = there(program, limit)
    METER.reset()
    found = executable.run(given)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert METER.most[CHIP] <= limit
    assert not METER.lying[CHIP]
    assert executable.memories[CHIP].peak <= limit


def test_more_memory_needs_fewer_copies_and_enough_needs_each_argument_once() -> None:
    program = step()
    made = [there(program, limit) for limit in (12 * WEIGHT, 24 * WEIGHT, 1 << 30)]
    copies = [sum(each.spec.bytes for each in executable.copies) for executable in made]
    assert copies[0] > copies[1] > copies[2]
    results = set(made[-1]._cut.cut.results)
    moved = [each.number for each in made[-1].copies]
    assert len(moved) == len(set(moved))
    assert {each.number for each in made[-1].copies if each.place == HOME} <= results


def test_an_operation_that_needs_more_than_there_is_is_refused_in_words() -> None:
    program = step()
    with pytest.raises(OutOfMemory, match=r"needs \d+ bytes at once on chip:0 by metered; 16384 were given"):
        there(program, WEIGHT)


def test_a_plan_streams_a_program_between_backends_and_its_path_is_saved() -> None:
    program = step()
    path = pcp.streamed(program, "arena:cpu", 24 * WEIGHT)
    plan = pcp.plan(program, "cpu:0", path=pcp.Path.from_json(path.to_json()))
    assert plan.path is not None
    assert plan.path.placement == path.placement
    plain = pcp.plan(program, "cpu:0")
    states = [arguments(program)[0] for _ in range(2)]
    x = arguments(program)[1]
    for _ in range(2):
        states = [each.run(state, x)[0] for each, state in zip((plan, plain), states, strict=True)]
    for one, other in zip(
        *(np.concatenate([np.ravel(w) for w in s["params"][0]]) for s in states), strict=True
    ):
        assert abs(one - other) < 1e-4
    assert "regions" in str(plan)


@pytest.mark.parametrize(
    "wrong", [{"streamed": "cuda", "bytes": 5}, {"streamed": "xla:cuda:0", "bytes": 0}, {"bytes": 5}]
)
def test_a_path_that_streams_to_no_place_is_refused(wrong: dict[str, Any]) -> None:
    text = json.loads(pcp.streamed(step(), "arena:cpu", 1 << 20).to_json()) | {"placement": wrong}
    with pytest.raises(NotAPath, match="expected a place, as xla:cuda:0, and bytes above 0"):
        pcp.Path.from_json(json.dumps(text))


def test_empty_arrays_arguments_that_are_results_and_what_is_no_number_pass_through() -> None:
    program = pcp.trace(
        lambda x, y, z: (y, pcp.tanh(x) @ x, z * 2.0, y),
        *[pcp.spec(each, "f32") for each in ((8, 8), (3,), (0, 4))],
    )
    x = np.full((8, 8), np.nan, np.float32)
    plan = pcp.plan(program, "cpu:0", path=pcp.streamed(program, "arena:cpu", 2048))
    y, product, z, again = plan.run(x, np.arange(3, dtype=np.float32), np.zeros((0, 4), np.float32))
    assert (np.asarray(y).tolist(), np.asarray(again).tolist(), z.shape) == ([0, 1, 2], [0, 1, 2], (0, 4))
    assert np.isnan(np.asarray(product)).all()
    nothing = pcp.trace(lambda x: x, pcp.spec((3,), "f32"))
    path = pcp.streamed(nothing, "arena:cpu", 1)
    assert np.asarray(pcp.plan(nothing, "cpu:0", path=path).run(np.ones(3, np.float32))).tolist() == [1, 1, 1]


def test_what_is_no_program_or_no_memory_is_refused_in_words() -> None:
    with pytest.raises(pcp.PCPError, match=r"pcp\.streamed"):
        pcp.streamed(lambda x: x, "arena:cpu", "1GiB")  # type: ignore[arg-type]  # no program
    with pytest.raises(pcp.PCPError, match="the memory limit 'much' is not a positive number of bytes"):
        pcp.streamed(step(), "arena:cpu", "much")


def test_what_makes_room_lies_in_pinned_memory_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a GPU; a processor has memory of that name, too, though nobody needs it."""
    seen = []

    def aside(_: object, buffer: Any) -> Any:
        seen.append(jax.device_put(buffer, buffer.sharding.with_memory_kind("pinned_host")))
        return seen[-1]

    monkeypatch.setattr(XLABackend, "aside", aside)
    program = step()
    whole = pcp.plan(program, "cpu:0")
    path = pcp.streamed(program, "cpu:0", "400KiB")
    plan = pcp.plan(program, "arena:cpu", path=path, cache=False)
    expected, made = (flatten(each.run(*arguments(program)))[0] for each in (whole, plan))
    assert {each.sharding.memory_kind for each in seen} == {"pinned_host"}
    for one, other in zip(made, expected, strict=True):
        assert Target.of("arena:cpu").holds(one)
        # Each beside its own length, as moments are small: one step's decay is 1e-4 of a weight, a stale block all of it.
        assert np.linalg.norm(np.asarray(one, np.float64) - other) <= 5e-5 * np.linalg.norm(other)


def test_a_processor_lays_nothing_aside() -> None:
    assert Target.of("cpu:0").runner.aside(jax.device_put(np.ones(3), jax.devices("cpu")[0])) is None
