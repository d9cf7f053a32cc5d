"""Element types and shapes."""

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pcp.ir import DType, InvalidShape, TensorSpec, UnknownDType
from pcp.ir.types import checked_shape, dtype_from_mlir, dtype_of


@pytest.mark.parametrize("dtype", list(DType))
def test_every_spelling_of_a_type_means_it(dtype: DType) -> None:
    assert (
        dtype_of(dtype)
        is dtype_of(dtype.value)
        is dtype_of(dtype.numpy)
        is dtype_of(dtype.numpy.type)
        is dtype
    )
    assert dtype_from_mlir(dtype.mlir) is dtype
    assert dtype.itemsize == np.zeros(1, dtype.numpy).nbytes
    assert dtype == dtype.value
    assert dtype == dtype.numpy
    assert dtype == dtype.numpy.type
    assert dtype == dtype.numpy.name
    assert operator.ne(dtype, dtype.numpy) is False
    assert dtype in {dtype.value} | {dtype}
    assert [each for each in DType if each == dtype.numpy or each == dtype.numpy.name] == [dtype]
    assert dtype != np.dtype("U3")
    assert dtype not in (None, 3, object(), len)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (bool, "bool"),
        (int, "i32"),
        (float, "f32"),
        (complex, "c64"),
        (np.float64, "f64"),
        (np.dtype("float64"), "f64"),
        (np.dtype("int64"), "i64"),
        (np.dtype("bool"), "bool"),
        ("float64", "f64"),
        ("bfloat16", "bf16"),
        (ml_dtypes.bfloat16, "bf16"),
    ],
)
def test_python_and_numpy_types(given: Any, expected: str) -> None:
    assert dtype_of(given) == expected


@pytest.mark.parametrize(
    "given", ["str", "", object, np.dtype("U3"), np.dtype("datetime64[s]"), 3, None, [], "i8 "]
)
def test_what_is_no_element_type_is_refused_with_those_that_are(given: Any) -> None:
    with pytest.raises(
        UnknownDType, match=r"is not an element type.*; choose one of bool, i8, .* or a NumPy type"
    ):
        dtype_of(given)


@pytest.mark.parametrize(
    ("given", "numpy", "name"),
    [("f8", "float64", "f64"), ("i1", "int8", "i8"), ("f2", "float16", "f16"), ("c8", "complex64", "c64")],
)
def test_short_names_of_numpy_count_bytes_and_are_refused(given: str, numpy: str, name: str) -> None:
    with pytest.raises(UnknownDType, match=f"where NumPy reads it as {numpy}, write '{name}': .* count bits"):
        dtype_of(given)


def test_names_in_both_libraries_are_pcps_and_count_bits() -> None:
    assert (dtype_of("i8"), dtype_of("i4"), dtype_of("f16")) == ("i8", "i4", "f16")
    assert (dtype_of(np.dtype("i8")), dtype_of("<i8"), dtype_of(np.dtype("f2"))) == ("i64", "i64", "f16")


def test_types_of_storage_say_how_wide_they_are() -> None:
    storage = {dtype: dtype.bits for dtype in DType if dtype.kind == "storage"}
    assert {width for dtype, width in storage.items() if dtype.startswith("f8")} == {8}
    assert {str(dtype): width for dtype, width in storage.items() if not dtype.startswith("f8")} == {
        "i2": 2, "i4": 4, "u2": 2, "u4": 4, "f4E2M1FN": 4
    }  # fmt: skip
    assert all(dtype.itemsize == 1 for dtype in storage)


def test_an_mlir_type_that_pcp_lacks_is_refused() -> None:
    with pytest.raises(UnknownDType, match="element type f6E2M3FN of MLIR has no counterpart in PCP"):
        dtype_from_mlir("f6E2M3FN")


def test_kinds() -> None:
    assert [dtype.kind for dtype in (DType.bool, DType.i8, DType.u64, DType.bf16, DType.c64)] == [
        "bool",
        "signed",
        "unsigned",
        "float",
        "complex",
    ]
    assert [dtype for dtype in DType if dtype.is_float] == ["bf16", "f16", "f32", "f64"]
    assert not DType.bool.is_integer
    assert DType.c64.is_differentiable
    assert not DType.i32.is_differentiable


def test_a_spec_knows_its_size() -> None:
    spec = TensorSpec((3, 4), DType.bf16)
    assert (spec.size, spec.bytes, str(spec)) == (12, 24, "bf16[3,4]")
    assert (TensorSpec((), DType.f64).size, TensorSpec((0, 3), DType.f32).bytes) == (1, 0)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, -1), r"shape \(2, -1\) has the size -1; every size must be a non-negative integer"),
        ((2.5,), "has the size 2.5"),
        ((True,), "has the size True"),
        (("3",), "has the size '3'"),
        ((2**30, 2**30), "has 1.15e\\+18 elements, more than any memory holds"),
    ],
)
def test_a_wrong_shape_is_explained(shape: Any, message: str) -> None:
    with pytest.raises(InvalidShape, match=message):
        checked_shape(shape)


def test_a_shape_may_be_one_number_or_come_from_numpy() -> None:
    assert checked_shape(3) == (3,)
    assert checked_shape(np.int64(3)) == (3,)
    assert [type(size) for size in checked_shape(np.array([2, 3]))] == [int, int]
