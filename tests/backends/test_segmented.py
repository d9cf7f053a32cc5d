"""Deep programs run in segments: results, donations, memory and errors are those of the whole."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.execution import QUICK, exactly
from tests.rewrite.deep_programs import Layer, layer, stacked, training_step

import pcp
from pcp import backends
from pcp.backends import Device, Executable, ExecutionFailed, Target
from pcp.backends.base import MemoryUse
from pcp.backends.regions.executable import RegionsExecutable
from pcp.backends.regions.segmented import VARIABLE, compiled_in_segments
from pcp.backends.xla import XLAExecutable
from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.ops.control.branches import cond
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import real
from pcp.ops.sorting.sorting import sort
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.rewrite.segments import segments
from pcp.tensor import Tensor

pytestmark = [
    pytest.mark.usefixtures("small_is_deep"),
    pytest.mark.skipif(backends.device().kind != "cpu", reason="programs are cut for processors only"),
]

Arrays = list[np.ndarray[Any, Any]]


def compiled(program: Program) -> Executable:
    return Target.of(options=QUICK).compile(program, cache=False)


@functools.cache
def whole(program: Program) -> XLAExecutable:
    with mock.patch.dict(os.environ, {VARIABLE: "0"}):
        made = compiled(program)
    assert isinstance(made, XLAExecutable)
    return made


@functools.cache
def segmented(program: Program) -> RegionsExecutable:
    made = compiled(program)
    assert isinstance(made, RegionsExecutable)
    return made


def arguments(program: Program) -> Arrays:
    """Fresh ones."""
    return random_arguments(program.arguments, Recipe(seed=int(np.random.default_rng().integers(1 << 30))), 0)


def results(executable: Executable, program: Program, arrays: Arrays) -> Arrays:
    return [np.asarray(each) for each in executable.run(placed(program, arrays))]


def placed(program: Program, arrays: Arrays) -> list[Any]:
    pairs = zip(arrays, program.arguments, strict=True)
    return [Target.of().place(array, entry.spec) for array, entry in pairs]


def errors(found: Sequence[Any], right: Sequence[Any]) -> list[float]:
    pairs = zip(found, right, strict=True)
    return [float(np.linalg.norm(a.astype(float) - b) / max(np.linalg.norm(b), 1e-30)) for a, b in pairs]


def looping(x: Tensor, w: Tensor) -> Tensor:
    """A layer with a loop whose body reads values from outside of it."""
    return layer(fori_loop(0, 3, lambda _, y: y + pcp.tanh(x @ w), x), w)


def branching(x: Tensor, w: Tensor) -> Tensor:
    return layer(cond(x.sum() > 0, lambda y: y + w.sum(), lambda y: y - x, x), w)


def sorting(x: Tensor, w: Tensor) -> Tensor:
    return layer(sort(x), w)


TABLE = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)


def tabulated(x: Tensor, w: Tensor) -> Tensor:
    """A layer with a constant that is too large to be copied to every one."""
    return layer(x + pcp.tanh(x @ TABLE.T) @ TABLE, w)


def turning(x: Tensor, w: Tensor) -> Tensor:
    """A layer with complex constants, small and large."""
    turned = (x @ TABLE.T) * (1j * TABLE[:, 0] * TABLE.sum(1)).astype(np.complex64)
    widely = turned[:, :, None] * np.exp(1j * TABLE).astype(np.complex64)
    return layer(x + real(widely).sum(axis=1), w)


def tied(layers: int) -> Program:
    """All layers have the same weights, and every one adds to a second result."""

    def run(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        total = x
        for _ in range(layers):
            x = layer(x, w)
            total = total + x
        return x, total

    return pcp.trace(run, pcp.spec((4, 8), "f32"), pcp.spec((8, 8), "f32"))


def alternating(most: Layer, third: Layer) -> Program:
    """Layers that are alike but for what these say of every third and of the others."""

    def run(x: Tensor, weights: list[Tensor]) -> Tensor:
        for number, w in enumerate(weights):
            x = layer((most if number % 3 else third)(x, w), w)
        return x

    return pcp.trace(run, pcp.spec((8, 8), "f32"), [pcp.spec((8, 8), "f32")] * 24)


def looking_inside(layers: int) -> Program:
    """One layer's result is returned, too."""

    def run(x: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
        made = [x]
        for w in weights:
            made.append(layer(made[-1], w))
        return made[-1], made[layers // 2 + 1]

    return pcp.trace(run, pcp.spec((4, 8), "f32"), [pcp.spec((8, 8), "f32")] * layers)


def decaying(layers: int) -> Program:
    """Every layer's weights are donated, and one layer's are read again at the end."""

    def run(state: list[Tensor], x: Tensor) -> tuple[list[Tensor], Tensor]:
        made = []
        for w in state:
            x = layer(x, w)
            made.append(0.9 * w)
        return made, x @ state[layers // 2]

    return pcp.trace(run, [pcp.spec((8, 8), "f32", role="state")] * layers, pcp.spec((4, 8), "f32"))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "layers": lambda: stacked(12),
    "one more than are cut": lambda: stacked(13),
    "loops": lambda: stacked(12, apply=looping),
    "branches": lambda: stacked(12, apply=branching),
    "sorts": lambda: stacked(12, apply=sorting),
    "tables": lambda: stacked(12, apply=tabulated),
    "complex tables": lambda: stacked(12, apply=turning),
    "tied weights": lambda: tied(12),
    "other order of operands": lambda: alternating(lambda x, w: x - w, lambda x, w: w - x),
    "other numbers": lambda: alternating(lambda x, _: x * 0.5, lambda x, _: x * 0.75),
    "other bodies of loops": lambda: alternating(
        lambda x, w: fori_loop(0, 2, lambda _, y: y + pcp.tanh(w), x),
        lambda x, w: fori_loop(0, 2, lambda _, y: y + pcp.exp(w), x),
    ),
    "one layer's result is returned": lambda: looking_inside(24),
    "one layer's donated weights are read again": lambda: decaying(24),
    "a training step": lambda: training_step(6),
    "one value for two donated arguments": lambda: state_of_one_value(12),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_whole(name: str) -> None:
    program = PROGRAMS[name]()
    arrays = arguments(program)
    right = flatten(exactly(program, *program.argument_tree.unflatten(arrays)))[0]
    by_segments = errors(results(segmented(program), program, arrays), right)
    by_whole = errors(results(whole(program), program, arrays), right)
    assert max(by_segments) <= 4 * max(by_whole) + 1e-6


def state_of_one_value(layers: int) -> Program:
    """Donated arguments: two become one value, which is returned once more, one stays as it is, and nothing reads one."""

    def run(
        state: dict[str, Tensor], x: Tensor, weights: list[Tensor]
    ) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
        for w in weights:
            x = layer(x, w)
        new = x + state["a"] + state["b"]
        return {"a": new, "b": new, "c": state["c"], "d": x * 2.0}, new, x, weights[0]

    state = {name: pcp.spec((4, 8), "f32", role="state") for name in "abcd"}
    return pcp.trace(run, state, pcp.spec((4, 8), "f32"), [pcp.spec((8, 8), "f32")] * layers)


@pytest.mark.parametrize("program", [training_step(6), state_of_one_value(12)], ids=["a step", "one value"])
def test_what_is_donated_is_gone_and_nothing_else(program: Program) -> None:
    arrays = arguments(program)
    for executable in (segmented(program), whole(program)):
        given = placed(program, arrays)
        executable.run(given)
        gone = [backends.backend().is_deleted(buffer) for buffer in given]
        assert gone == [entry.alias is not None for entry in program.arguments]


def test_what_no_segment_can_take_over_is_given_back() -> None:
    def run(x: Tensor, weights: list[Tensor]) -> Tensor:
        first = x
        for w in weights:
            x = layer(x, w)
        return x * first  # the first result that is made is read again at the end

    def both(state: dict[str, Tensor], weights: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        early = pcp.tanh(state["x"])
        return {"x": early}, run(state["x"], weights)

    state = {"x": pcp.spec((4, 8), "f32", role="state")}
    program = pcp.trace(both, state, [pcp.spec((8, 8), "f32")] * 12)
    cut = segments(program)
    assert cut is not None
    assert cut.left == (0,)
    arrays = arguments(program)
    given = placed(program, arrays)
    found, _ = segmented(program).run(given)
    assert backends.backend().is_deleted(given[0])
    np.testing.assert_allclose(np.asarray(found), np.tanh(arrays[0]), rtol=1e-5, atol=1e-6)


def test_equal_segments_are_compiled_once_and_kept_for_deeper_programs() -> None:
    seen: list[Program] = []

    def compile_one(program: Program) -> Executable:
        seen.append(program)
        return compiled(program)

    assert compiled_in_segments(stacked(12), Target.of(), compile_one) is not None
    few = len(seen)
    assert compiled_in_segments(stacked(48), Target.of(), compile_one) is not None
    assert few <= 3
    assert seen[few:] == seen[:few]


def test_memory_is_nearly_that_of_the_whole() -> None:
    program = training_step(6)
    found, other = segmented(program).memory, whole(program).memory
    assert found.arguments == other.arguments == sum(entry.spec.bytes for entry in program.arguments)
    assert found.aliased == other.aliased > 0
    assert found.results == sum(entry.spec.bytes for entry in program.results)
    assert 0.8 * other.peak < found.peak < 1.5 * other.peak


class Pretended:
    """An executable that takes some memory and does nothing."""

    def __init__(self, memory: MemoryUse) -> None:
        self.memory = memory

    def run(self, buffers: Sequence[Any]) -> list[Any]:
        raise ExecutionFailed(f"refused {len(buffers)} arguments")


def test_memory_is_that_of_what_lives_at_once() -> None:
    program = stacked(12)
    made = compiled_in_segments(
        program, Target.of(), lambda _: Pretended(MemoryUse(0, 0, 0, 1000, exact=True))
    )
    assert made is not None
    array = 4 * 8 * 4
    arguments = array + 12 * 8 * 8 * 4
    # Beside the result of the last layer lives that of the one before it.
    assert made.memory == MemoryUse(arguments, array, 0, array + 1000, exact=True)


def test_memory_that_a_compiler_does_not_report_is_not_exact() -> None:
    made = compiled_in_segments(
        stacked(12), Target.of(), lambda _: Pretended(MemoryUse(0, 0, 0, 0, exact=False))
    )
    assert made is not None
    assert not made.memory.exact


def test_what_fits_only_as_a_whole_is_compiled_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    program = stacked(12)
    peak = segmented(program).memory.peak
    small = Device("cpu", 0, peak - 1)
    native = {small: backends.xla.native_device(backends.device())}
    monkeypatch.setattr("pcp.backends.xla._devices", lambda: native)
    made = Target("xla", (small,)).with_options(QUICK).compile(program, cache=False)
    assert isinstance(made, XLAExecutable)


def test_what_is_to_be_ready_soon_is_cut_however_little_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.rewrite.segments.LEAST_FLOPS", 1e12)
    monkeypatch.delenv(VARIABLE, raising=False)
    target = Target.of()
    quick = target.with_options(target.runner.quick_options(target))
    kinds = [type(each.compile(stacked(12), cache=False)) for each in (target, quick)]
    assert kinds == [XLAExecutable, RegionsExecutable]


def test_a_segment_that_fails_says_so() -> None:
    made = compiled_in_segments(
        stacked(12), Target.of(), lambda _: Pretended(MemoryUse(0, 0, 0, 0, exact=True))
    )
    assert made is not None
    with pytest.raises(ExecutionFailed, match="refused 5 arguments"):
        made.run(placed(stacked(12), arguments(stacked(12))))


@pytest.mark.parametrize(("said", "is_cut", "warnings"), [("1", True, 0), ("0", False, 0), ("no", True, 1)])
def test_the_environment_decides(
    said: str, is_cut: bool, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, said)
    assert isinstance(compiled(stacked(12)), RegionsExecutable) == is_cut
    expected = "PCP_COMPILE_IN_SEGMENTS is 'no'; expected 0 or 1; deep programs are compiled in segments"
    assert [expected] * warnings == [message for message in caplog.messages if VARIABLE in message]


def test_a_plan_of_a_deep_program_repeats_its_bits() -> None:
    program = training_step(6)
    plan = pcp.plan(program, options=QUICK)
    state = program.argument_tree.unflatten(arguments(program))
    first, again = (flatten(plan.run(*state))[0] for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
