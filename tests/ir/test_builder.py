"""The Builder: operations, constants and regions of a program under construction."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.execution import QUICK

import pcp
from pcp.ir import Builder, DType, InvalidProgram, TensorSpec
from pcp.ir.builder import attribute
from pcp.tensor import current_builder


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 2)])
@pytest.mark.parametrize("repeated", [False, True])
def test_constants_have_the_elements_of_the_array(
    dtype: DType, shape: tuple[int, ...], repeated: bool
) -> None:
    rng = np.random.default_rng(7)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    if repeated:
        raw = np.broadcast_to(rng.integers(0, 256, dtype.itemsize, np.uint8), raw.shape).copy()
    array = raw[..., 0] > 127 if dtype is DType.bool else raw.reshape(-1).view(dtype.numpy).reshape(shape)
    if dtype.kind in ("float", "complex"):
        array = np.nan_to_num(array.astype(np.complex128 if dtype.kind == "complex" else np.float64)).astype(
            dtype.numpy
        )
    if dtype.bits < 8:  # the rest of the byte means nothing
        array = array.astype(np.int8).astype(dtype.numpy)
    program = pcp.trace(lambda: array)
    assert program.results[0].spec == TensorSpec(shape, dtype)
    result = np.asarray(pcp.plan(program, cache=False, options=QUICK).run())
    assert result.tobytes() == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_special_values_are_constants_too(dtype: Any) -> None:
    for array in (np.array([-0.0], dtype), np.array([np.inf, -np.inf], dtype), np.array([-0.0, 0.0], dtype)):
        result = np.asarray(pcp.plan(pcp.trace(lambda a=array: a), cache=False).run())
        assert result.tobytes() == array.tobytes()
    assert np.isnan(pcp.plan(pcp.trace(lambda: np.array(np.nan, dtype)), cache=False).run())


def test_equal_elements_are_stored_once() -> None:
    program = pcp.trace(lambda: np.full((1000, 1000), 3.5, np.float32))
    assert len(program.bytecode) < 2000
    assert "dense<3.5" in program.text


def test_an_operation_that_refuses_its_operands_is_explained() -> None:
    def wrong(x: pcp.Tensor) -> pcp.Tensor:
        current_builder().emit("stablehlo.concatenate", [x.value], None, {"dimension": 7})
        return x

    with pytest.raises(
        InvalidProgram, match=r"stablehlo.concatenate refuses its operands \['tensor<2xf32>'\]: "
    ):
        pcp.trace(wrong, pcp.spec((2,), "f32"))


def test_an_explicit_result_type_that_is_wrong_is_found_at_the_end() -> None:
    def wrong(x: pcp.Tensor) -> pcp.Tensor:
        builder = current_builder()
        spec = TensorSpec((3,), DType.f32)
        return pcp.Tensor(
            builder.emit("stablehlo.add", [x.value, x.value], (spec,)).results[0], builder, spec
        )

    with pytest.raises(InvalidProgram, match=r"the program does not verify:\n.*test_builder.py"):
        pcp.trace(wrong, pcp.spec((2,), "f32"))


def test_what_has_no_attribute_is_refused() -> None:
    with pytest.raises(TypeError, match=r"1\.5 of type float has no MLIR attribute"):
        attribute(1.5)


def test_values_of_a_closed_region_are_closed() -> None:
    seen: list[bool] = []

    def function(x: pcp.Tensor) -> pcp.Tensor:
        builder: Builder = current_builder()
        scalar = TensorSpec((), DType.f32)
        op = builder.emit(
            "stablehlo.reduce", [x.value, x[0].value], (scalar,), {"dimensions": (0,)}, regions=1
        )
        with builder.region(op, 0, (scalar, scalar)) as (left, right):
            scope = builder.scope
            seen.append(scope.open)
            total = builder.emit("stablehlo.add", [left, right], (scalar,))
            builder.emit("stablehlo.return", [total.results[0]], ())
        seen.append(scope.open)
        return pcp.Tensor(op.results[0], builder, scalar)

    pcp.trace(function, pcp.spec((4,), "f32"))
    assert seen == [True, False]
