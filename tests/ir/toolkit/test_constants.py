"""Numbers read from constants: every element type, signs, what is no single number."""

import math

import numpy as np
import pytest

from pcp.ir.bindings import Value, parse_module
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import returned_by


def read(constant: str, type_: str, broadcast: bool = False) -> float | int | None:
    """What is read from a program that returns a constant, perhaps repeated."""
    wide = type_.replace("tensor<", "tensor<4x") if broadcast else type_
    repeated = f"%1 = stablehlo.broadcast_in_dim %0, dims = [] : ({type_}) -> {wide}" if broadcast else ""
    text = (
        f"func.func @main() -> {wide} {{ %0 = stablehlo.constant dense<{constant}> : {type_}\n{repeated}\n"
        f"return %{int(broadcast)} : {wide} }}"
    )
    module = parse_module(text)
    (value,) = returned_by(entry_block(module))
    return splat_number(value)


@pytest.mark.parametrize("type_", ["f64", "f32", "f16", "bf16", "i8", "i64", "ui8", "i1"])
def test_the_number_of_every_element_type_is_read(type_: str) -> None:
    given = {"i1": "true"}.get(type_, "3.0" if "f" in type_ else "3")
    expected = True if type_ == "i1" else 3
    assert read(given, f"tensor<2x{type_}>") == expected
    assert read(given, f"tensor<{type_}>", broadcast=True) == expected


def test_signs_and_infinities_are_kept() -> None:
    assert read("-7", "tensor<3xi32>") == -7
    assert read("0xFF800000", "tensor<f32>") == -math.inf
    assert np.signbit(read("-0.0", "tensor<2xf32>"))
    assert math.isnan(read("0x7FC00000", "tensor<f32>") or 0.0)


@pytest.mark.parametrize(
    ("constant", "type_"), [("[1.0, 2.0]", "tensor<2xf32>"), ("(1.0, 0.0)", "tensor<2xcomplex<f32>>")]
)
def test_elements_that_differ_and_complex_ones_are_no_number(constant: str, type_: str) -> None:
    assert read(constant, type_) is None


def test_an_argument_and_what_is_computed_are_no_constants() -> None:
    module = parse_module(
        "func.func @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {"
        " %0 = stablehlo.add %x, %x : tensor<f32>\n return %x, %0 : tensor<f32>, tensor<f32> }"
    )
    values: list[Value] = returned_by(entry_block(module))
    assert [splat_number(value) for value in values] == [None, None]
