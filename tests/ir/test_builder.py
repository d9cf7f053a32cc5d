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


def _any_bits(dtype: DType, shape: tuple[int, ...], repeated: bool) -> Any:
    """An array of random bits, of finite numbers where they are floats; repeated: the same in all elements."""
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
    return np.ascontiguousarray(array)


@pytest.mark.parametrize("dtype", list(DType))
def test_constants_have_the_elements_of_the_array(dtype: DType) -> None:
    shapes = [(), (5,), (2, 3), (0, 2)]
    arrays = [_any_bits(dtype, shape, repeated) for shape in shapes for repeated in (False, True)]
    program = pcp.trace(lambda: arrays)
    assert [entry.spec for entry in program.results] == [TensorSpec(each.shape, dtype) for each in arrays]
    for array, result in zip(arrays, _run(program), strict=True):
        assert np.asarray(result).tobytes() == array.tobytes(), array


def _run(program: pcp.Program) -> Any:
    return pcp.plan(program, cache=False, options=QUICK).run()


def test_special_values_are_constants_too() -> None:
    dtypes = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
    rows = ([-0.0], [np.inf, -np.inf], [-0.0, 0.0])
    arrays = [np.array(row, dtype) for dtype in dtypes for row in rows]
    nan = [np.array(np.nan, dtype) for dtype in dtypes]
    found, unknown = _run(pcp.trace(lambda: (arrays, nan)))
    for array, result in zip(arrays, found, strict=True):
        assert np.asarray(result).tobytes() == array.tobytes(), array
    assert np.isnan([np.asarray(each, np.float64) for each in unknown]).all()


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
