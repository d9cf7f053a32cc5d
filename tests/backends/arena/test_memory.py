"""The plan of the workspace: no two values that live at once overlap, and it is hardly larger than what lives at once."""

import functools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.arena.lifetimes import problems_of
from tests.execution import run

import pcp
from pcp import nn, ops
from pcp.backends import Target
from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.arena.lowerings.elementwise import BLOCK, blocks_of
from pcp.backends.arena.placement import aligned, placed
from pcp.backends.arena.storage import ALIGNMENT, Storage
from pcp.ir.tree import flatten
from pcp.models import decoder
from pcp.models.published import gpt2_config

ARENA = Target.of("cpu:0", backend="arena")


def planned(program: pcp.Program) -> ArenaExecutable:
    executable = ARENA.compile(program)
    assert isinstance(executable, ArenaExecutable)
    return executable


@functools.cache
def gpt2_step(width: int = 48, vocabulary: int = 97) -> pcp.Program:
    config = gpt2_config(layers=1, heads=3, width=width, context=32, vocabulary=vocabulary)
    tokens = pcp.spec((4, 32), "i32")
    loss = pcp.trace(
        lambda p, x, y: decoder.loss(p, x, y, config), decoder.initial_parameters(config), tokens, tokens
    )
    return pcp.training_step(loss, pcp.optimizers.adamw(3e-4))


def unet(channels: int = 8, size: int = 16) -> pcp.Program:
    """Down twice by pooling, up twice by repeating, each level joined with what it had on the way down."""
    rng = np.random.default_rng(0)

    def kernel(i: int, o: int) -> Any:
        return rng.standard_normal((3, 3, i, o)).astype(np.float32) / (9 * i) ** 0.5

    c = channels
    weights = {
        "in": kernel(3, c), "down": kernel(c, 2 * c), "deep": kernel(2 * c, 4 * c),
        "up": kernel(6 * c, 2 * c), "top": kernel(3 * c, c), "out": kernel(c, 3),
    }  # fmt: skip

    def layer(x: Any, w: Any) -> Any:
        return nn.silu(nn.conv(x, w, padding="SAME"))

    def up(x: Any) -> Any:
        b, h, w, f = x.shape
        return x.reshape(b, h, 1, w, 1, f).broadcast_to((b, h, 2, w, 2, f)).reshape(b, 2 * h, 2 * w, f)

    def pool(x: Any) -> Any:
        b, h, w, f = x.shape
        return x.reshape(b, h // 2, 2, w // 2, 2, f).mean((2, 4))

    def loss(w: Any, x: Any) -> Any:
        first = layer(x, w["in"])
        second = layer(pool(first), w["down"])
        deep = layer(pool(second), w["deep"])
        second = layer(ops.concatenate([second, up(deep)], -1), w["up"])
        first = layer(ops.concatenate([first, up(second)], -1), w["top"])
        return ((layer(first, w["out"]) - x) ** 2).mean()

    program = pcp.trace(loss, weights, pcp.spec((2, size, size, 3), "f32"))
    return pcp.training_step(program, pcp.optimizers.sgd(1e-2))


def lstm(width: int = 32, length: int = 12) -> pcp.Program:
    """A step of training a layer whose gates are one product, over a sequence."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((2 * width, 4 * width)).astype(np.float32) / width**0.5}

    def loss(p: Any, xs: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            gates = ops.concatenate([x, h], -1) @ p["w"]
            i, f, g, o = ops.split(gates, 4, -1)
            c = pcp.sigmoid(f) * c + pcp.sigmoid(i) * pcp.tanh(g)
            h = pcp.sigmoid(o) * pcp.tanh(c)
            return (h, c), h

        zero = ops.zeros((8, width), "f32")
        _, hs = ops.scan(cell, (zero, zero), xs)
        return (hs**2).mean()

    program = pcp.trace(loss, weights, pcp.spec((length, 8, width), "f32"))
    return pcp.training_step(program, pcp.optimizers.sgd(1e-2))


def arguments_of(program: pcp.Program) -> list[Any]:
    """Tokens, and small numbers that are not negative, as second moments are."""
    rng = np.random.default_rng(1)
    return [
        (
            rng.integers(0, 97, entry.spec.shape)
            if entry.spec.dtype == "i32" and entry.spec.shape
            else abs(0.1 * rng.standard_normal(entry.spec.shape))
        ).astype(entry.spec.dtype.numpy)
        for entry in program.arguments
    ]


MODELS: dict[str, Callable[[], pcp.Program]] = {"GPT-2": gpt2_step, "UNet": unet, "LSTM": lstm}


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_planned_close_to_the_lower_bound_and_nothing_overlaps(name: str) -> None:
    executable = planned(MODELS[name]())
    assert problems_of(executable) == []
    assert executable.workspace <= 1.05 * executable.lower_bound.size


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_that_of_xla(name: str) -> None:
    program = MODELS[name]()
    nested = program.argument_tree.unflatten(arguments_of(program))
    made, expected = (flatten(pcp.plan(program, target).run(*nested))[0] for target in (ARENA, None))
    for result, one, other in zip(program.results, made, expected, strict=True):
        a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b) + 1e-7, result.name


LARGER: dict[str, Callable[[], pcp.Program]] = {
    "GPT-2": lambda: gpt2_step(width=144, vocabulary=997),
    "UNet": lambda: unet(16, 48),
    "LSTM": lambda: lstm(192, 48),
}


def measured_and_planned(program: pcp.Program) -> tuple[int, int]:
    """Bytes of a call beside its arguments: as they are counted, and as the plan has them."""
    plan = pcp.plan(program, ARENA)
    buffers = plan._border.admit(tuple(program.argument_tree.unflatten(arguments_of(program))))
    use, executable = plan.memory["cpu:0"], plan._executable
    assert isinstance(executable, ArenaExecutable)
    executable._prepared()
    tracemalloc.start()
    held = executable.run(buffers)
    measured = executable._space.nbytes + executable._constants + tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(held) == len(program.results)
    return measured, use.peak - use.arguments


@pytest.mark.parametrize("name", LARGER)
def test_a_call_takes_the_memory_that_its_plan_says(name: str) -> None:
    measured, planned_bytes = measured_and_planned(LARGER[name]())
    assert 0.98 * planned_bytes <= measured <= 1.02 * planned_bytes


OF_SEVERAL_CALLS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "sign": (ops.sign, ("f32",)),
    "floor_divide": (lambda x, y: x // (y + 1), ("i32", "i32")),
    "remainder": (ops.fmod, ("i64", "i64")),
    "power": (ops.power, ("i32", "i32")),
    "power, narrow": (ops.power, ("bf16", "bf16")),
    "shift": (ops.shift_left, ("u32", "u32")),
    "to an integer": (lambda x: x.T.astype("i32"), ("f32",)),
    "uniform": (lambda x: x[:512] + pcp.random.uniform(x[0, :2].astype("u32"), (512, 2048)), ("f32",)),
}


@pytest.mark.parametrize("name", OF_SEVERAL_CALLS)
def test_what_numpy_computes_in_several_calls_takes_no_arrays_on_the_way(name: str) -> None:
    function, dtypes = OF_SEVERAL_CALLS[name]
    program = pcp.trace(function, *(pcp.spec((2048, 2048), dtype) for dtype in dtypes))
    measured, planned_bytes = measured_and_planned(program)
    assert 0.98 * planned_bytes <= measured <= 1.02 * planned_bytes


@pytest.mark.parametrize("shape", [(3,), (5000,), (20_000,), (3, 20_000), (5, 7, 999), (1, 20_000, 1)])
def test_blocks_are_an_array_together(shape: tuple[int, ...]) -> None:
    seen = np.zeros(shape, np.int8)
    for place in blocks_of(shape):
        assert seen[place].size <= BLOCK
        seen[place] += 1
    assert (seen == 1).all()


def test_computing_in_blocks_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.integers(-50, 50, (2, 70, 301), np.int32)
    narrow = rng.integers(-5, 5, (70, 1), np.int32)
    program = pcp.trace(
        lambda x, y, z: (x // y, x.T % y.T, (x * z) << (y & 3), pcp.sign(x.astype("f32") / 3)), x, y, narrow
    )
    made, expected = (flatten(pcp.plan(program, target).run(x, y, narrow))[0] for target in (ARENA, None))
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def _unary(draw: Any, x: Any) -> Any:
    kind = draw(
        st.sampled_from(("tanh", "transpose", "reverse", "slice", "reshape", "sum", "sort", "loop", "case"))
    )
    if kind == "tanh":
        return pcp.tanh(x)
    if kind == "transpose":
        return x.T
    if kind == "reverse":
        return x[::-1]
    if kind == "slice":
        return ops.concatenate([x[2:], x[:2]], 0)
    if kind == "reshape":
        return x.T.reshape(x.shape[0] // 2, -1).reshape(*x.shape)
    if kind == "sum":
        return x - x.sum(0)
    if kind == "sort":
        return ops.sort(x, 1)
    if kind == "loop":
        return ops.fori_loop(0, 3, lambda _, c: (c[1] * 0.5 + x, c[0]), (x, pcp.tanh(x)))[0]
    return ops.cond(x.sum() > 0, lambda a: a.T + 1, lambda a: pcp.tanh(a) * x, x)


@st.composite
def programs(draw: Any) -> pcp.Program:
    """Square arrays made from one another in random order, of either side of the size up to which arguments are copied."""
    n = draw(st.sampled_from((8, 40)))

    def build(state: Any, x: Any) -> Any:
        values = [state, x, x[0] + state]
        for _ in range(draw(st.integers(3, 14))):
            pick = st.sampled_from(range(len(values)))
            if draw(st.booleans()):
                values.append(_unary(draw, values[draw(pick)]))
            else:
                a, b = values[draw(pick)], values[draw(pick)]
                values.append(a @ b * 0.1 if draw(st.booleans()) else a + b)
        pick = st.sampled_from(values)
        return draw(pick), [draw(pick) for _ in range(draw(st.integers(1, 3)))]

    return pcp.trace(build, pcp.spec((n, n), "f32"), pcp.spec((n, n), "f32"), roles=("state", "input"))


@settings(max_examples=15, deadline=None)
@given(programs())
def test_in_random_programs_nothing_overlaps_and_results_are_those_of_xla(program: pcp.Program) -> None:
    executable = planned(program)
    assert problems_of(executable) == []
    rng = np.random.default_rng(0)
    state, x = (rng.standard_normal(entry.spec.shape).astype(np.float32) for entry in program.arguments)
    plan, expected = pcp.plan(program, ARENA), run(program, state, x)
    for _ in range(2):  # the second time in the same workspace
        made = flatten(plan.run(state, x))[0]
        for one, other in zip(made, flatten(expected)[0], strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=2e-4, atol=2e-4)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)), max_size=40))
def test_placed_storages_that_live_at_once_lie_apart(drawn: list[tuple[int, int, int]]) -> None:
    storages = [Storage(size, start=start, end=start + length) for size, start, length in drawn]
    total = placed(storages)
    for place, one in enumerate(storages):
        assert one.offset % ALIGNMENT == 0
        assert one.offset + aligned(one.size) <= total
        for other in storages[:place]:
            together = one.start <= other.end and other.start <= one.end
            apart = (
                one.offset + one.size <= other.offset or other.offset + other.size <= one.offset
            )  # nothing takes no bytes
            assert apart or not together
