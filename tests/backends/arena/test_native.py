"""Steps that the native library runs are those of NumPy, element by element, and can be left to NumPy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.backends.arena import native
from pcp.backends.arena.executable import ArenaExecutable
from pcp.ir.tree import flatten
from pcp.kernels.native import LIBRARIES, built
from pcp.kernels.native.permission import ALLOWED

ARENA = Target.of("arena:cpu")
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-4, 3e38, -3e38, 1e-40, 9.5, -9.5, 0.3])


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    built(LIBRARIES["steps"])
    native.runner.cache_clear()
    yield
    native.runner.cache_clear()


def every_operation(x: Any, y: Any, one: Any) -> list[Any]:
    """Each operation of two arrays, of an array and a number, and over an operand that is read for the last time."""
    pairs = [(x, y), (x, one), (one, y), (x + y, x)]
    made = [pcp.maximum(one, one) + y]
    for a, b in pairs:
        made += [a + b, a - b, a * b, a / b, pcp.maximum(a, b), pcp.minimum(a, b)]
        made += [-a, abs(a), pcp.sqrt(abs(b)), pcp.tanh(a * 1.5)]
    return made


def results_of(program: pcp.Program, arrays: list[Any]) -> list[Any]:
    return [np.array(leaf) for leaf in flatten(pcp.plan(program, ARENA).run(*arrays))[0]]


@pytest.mark.parametrize("size", [1, 12, 2000])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_native_steps_are_those_of_numpy(dtype: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(size)
    kind = pcp.ir.DType(dtype).numpy
    x, y = (np.resize(rng.permutation(SPECIAL), size).astype(kind) for _ in range(2))
    one = np.asarray(rng.normal(), kind)
    arrays = pcp.spec((size,), dtype), pcp.spec((size,), dtype), pcp.spec((), dtype)
    program = pcp.trace(every_operation, *arrays)
    executable = ARENA.compile(program)
    assert isinstance(executable, ArenaExecutable)
    assert any(is_native for _, is_native in native.runs_of(executable.recording.instructions))
    by_library = results_of(program, [x, y, one])
    monkeypatch.setenv(ALLOWED, "none")
    native.runner.cache_clear()
    assert native.runner() is None
    by_numpy = results_of(program, [x, y, one])
    for made, expected in zip(by_library, by_numpy, strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-6 if dtype == "f32" else 1e-15, atol=0)


def test_another_array_of_the_caller_is_read_where_it_lies() -> None:
    program = pcp.trace(lambda x: (x + 1) * x - 2, pcp.spec((3000,), "f32"))
    plan = pcp.plan(program, ARENA)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=3000).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(plan.run(x)), (x + 1) * x - 2)


def test_tanh_has_the_same_bits_alone_and_beside_others() -> None:
    x = np.random.default_rng().normal(size=1000).astype(np.float32)
    spec = pcp.spec((1000,), "f32")
    [alone] = results_of(pcp.trace(pcp.tanh, spec), [x])
    beside, _ = results_of(pcp.trace(lambda x: (pcp.tanh(x * 1), x * 1), spec), [x])
    np.testing.assert_array_equal(alone, beside)


def test_tanh_is_as_near_as_a_few_roundings() -> None:
    x = np.linspace(-12, 12, 16001, dtype=np.float32)
    made = results_of(pcp.trace(lambda x: pcp.tanh(x) * 1, pcp.spec((16001,), "f32")), [x])[0]
    exact = np.tanh(x.astype(np.float64))
    assert (abs(made - exact) <= 6 * np.spacing(abs(exact).astype(np.float32))).all()
