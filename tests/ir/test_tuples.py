"""Tuples of older exports: a program takes, makes, hands on and returns them as the arrays that they hold."""

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir import InvalidProgram, Program

PAIR = "tuple<tensor<2xf32>, tuple<tensor<i32>>>"
ALL = "tuple<tensor<2xf32>, tuple<tensor<2xf32>, tensor<i32>>>"
NESTED = f"""
func.func @main(%t: {PAIR}, %y: tensor<2xf32>) -> {ALL} {{
  %a = stablehlo.get_tuple_element %t[0] : ({PAIR}) -> tensor<2xf32>
  %b = stablehlo.get_tuple_element %t[1] : ({PAIR}) -> tuple<tensor<i32>>
  %c = stablehlo.get_tuple_element %b[0] : (tuple<tensor<i32>>) -> tensor<i32>
  %m = stablehlo.multiply %a, %y : tensor<2xf32>
  %p = stablehlo.tuple %m, %c : tuple<tensor<2xf32>, tensor<i32>>
  %d = stablehlo.tuple %a, %p : {ALL}
  %e = func.call @same(%d) : ({ALL}) -> {ALL}
  return %e : {ALL}
}}
func.func private @same(%d: {ALL}) -> {ALL} {{
  return %d : {ALL}
}}
"""
X = np.random.default_rng(3).normal(size=2).astype(np.float32)


def test_a_tuple_is_nesting() -> None:
    program = Program.parse(NESTED)
    assert "tuple<" not in program.text
    assert [str(entry.spec) for entry in program.arguments] == ["f32[2]", "i32[]", "f32[2]"]
    (whole, (product, count)) = run(program, (X, (np.int32(3),)), X + 1)
    np.testing.assert_array_equal(whole, X)
    np.testing.assert_array_equal(product, X * (X + 1))
    assert count == 3


def test_it_is_the_program_without_tuples() -> None:
    plain = """
    func.func @main(%a: tensor<2xf32>, %c: tensor<i32>, %y: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<i32>) {
      %m = stablehlo.multiply %a, %y : tensor<2xf32>
      return %a, %m, %c : tensor<2xf32>, tensor<2xf32>, tensor<i32>
    }"""
    program = Program.parse(NESTED)
    assert program.digest == Program.parse(plain).digest
    assert Program.from_artifact(program.artifact()).result_tree == program.result_tree


def test_it_is_differentiated() -> None:
    text = """
    func.func @main(%t: tuple<tensor<f32>, tensor<f32>>) -> tuple<tensor<f32>> {
      %a = stablehlo.get_tuple_element %t[0] : (tuple<tensor<f32>, tensor<f32>>) -> tensor<f32>
      %b = stablehlo.get_tuple_element %t[1] : (tuple<tensor<f32>, tensor<f32>>) -> tensor<f32>
      %m = stablehlo.multiply %a, %b : tensor<f32>
      %r = stablehlo.tuple %m : tuple<tensor<f32>>
      return %r : tuple<tensor<f32>>
    }"""
    program = Program.parse(text)
    given = (np.float32(3), np.float32(5))
    assert run(program, given) == (np.float32(15),)
    found = run(pcp.vjp(program), given, np.float32(2))
    assert [float(each) for each in pcp.ir.tree.flatten(found)[0]] == [10.0, 6.0]


def test_a_custom_call_and_a_loop_body_hand_tuples_on() -> None:
    text = """
    func.func @main(%x: tensor<2xf32>, %n: tensor<f32>) -> tensor<2xf32> {
      %w:2 = stablehlo.while(%a = %x, %b = %n) : tensor<2xf32>, tensor<f32>
        cond {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %p = stablehlo.compare GT, %b, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        } do {
          %t = stablehlo.tuple %a, %b : tuple<tensor<2xf32>, tensor<f32>>
          %u = stablehlo.custom_call @Sharding(%t) : (tuple<tensor<2xf32>, tensor<f32>>) -> tuple<tensor<2xf32>, tensor<f32>>
          %c = stablehlo.get_tuple_element %u[0] : (tuple<tensor<2xf32>, tensor<f32>>) -> tensor<2xf32>
          %d = stablehlo.get_tuple_element %u[1] : (tuple<tensor<2xf32>, tensor<f32>>) -> tensor<f32>
          stablehlo.return %c, %d : tensor<2xf32>, tensor<f32>
        }
      return %w#0 : tensor<2xf32>
    }"""
    program = Program.parse(text)
    assert "tuple" not in program.text
    assert (
        "@Sharding(%iterArg, %iterArg_0) : (tensor<2xf32>, tensor<f32>) -> (tensor<2xf32>, tensor<f32>)"
        in program.text
    )


def test_names_that_only_say_tuple_change_nothing() -> None:
    program = pcp.trace(lambda tuple: tuple[0] + tuple[1], (pcp.spec((2,), "f32"), pcp.spec((2,), "f32")))
    assert Program.parse(program.bytecode) == program


def test_tuples_nested_too_deep_are_refused() -> None:
    type_ = "tuple<" * 70 + "tensor<f32>" + ">" * 70
    with pytest.raises(
        InvalidProgram, match="tuples of the program are nested more than 64 deep; nest them less"
    ):
        Program.parse(f"func.func @main(%t: {type_}) -> {type_} {{ return %t : {type_} }}")
