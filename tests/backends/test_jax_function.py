"""A python function of JAX arrays runs as any executable, in the types it is given, and fails in a few ways only."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcp.backends import CompilationFailed, ExecutionFailed, OutOfMemory, Target
from pcp.backends.jax_function import JAXFunction
from pcp.ir import TensorSpec
from pcp.ir.types import DType

TARGET = Target.of()
SPECS = [TensorSpec((3, 2), DType.f64), TensorSpec((2,), DType.i64)]


def test_results_and_types() -> None:
    made = JAXFunction(lambda x, i: (x * 2, {"sum": i.sum()}), SPECS, TARGET)
    assert made.results == (TensorSpec((3, 2), DType.f64), TensorSpec((), DType.i64))
    x = np.random.default_rng(0).standard_normal((3, 2))
    doubled, total = made.run([x, np.array([1 << 40, 3])])
    np.testing.assert_array_equal(doubled, 2 * x)
    assert np.asarray(total) == (1 << 40) + 3
    assert doubled.devices() == TARGET.place(x, SPECS[0]).devices()
    assert made.memory.arguments == 3 * 2 * 8 + 2 * 8


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("tile"), CompilationFailed), (MemoryError("no room"), OutOfMemory)],
)
def test_what_a_function_raises_while_it_is_traced(error: Exception, kind: type[Exception]) -> None:
    def function(*_: Any) -> Any:
        raise error

    with pytest.raises(kind, match=str(error)):
        JAXFunction(function, SPECS, TARGET)


@pytest.mark.skipif(TARGET.platform != "cpu", reason="a callback that fails on a GPU may end the process")
@pytest.mark.parametrize(("error", "kind"), [("fire", ExecutionFailed), ("RESOURCE_EXHAUSTED", OutOfMemory)])
def test_what_a_function_raises_while_it_runs(error: str, kind: type[Exception]) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError(error)

    def function(x: Any, _: Any) -> Any:
        return jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), x)

    made = JAXFunction(function, SPECS, TARGET)
    with pytest.raises(kind, match=error):
        made.run([np.ones((3, 2)), np.ones(2, np.int64)])[0].block_until_ready()
