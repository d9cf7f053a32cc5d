"""Programs: parsed, verified, described, pickled."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import InvalidProgram, Program, Role, TreeMismatch
from pcp.optimizers import sgd
from pcp.training.step import TrainingStep, training_step

ADD = """
func.func {visibility} @{name}(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {{
  %0 = stablehlo.add %a, %b : tensor<2xf32>
  return %0 : tensor<2xf32>
}}
"""


def function(name: str, visibility: str = "public") -> str:
    return ADD.format(name=name, visibility=visibility)


def test_a_module_without_attributes_has_numbered_arguments() -> None:
    program = Program.parse(function("main"))
    assert [(entry.name, str(entry.spec), entry.role, entry.alias) for entry in program.arguments] == [
        ("0", "f32[2]", Role.input, None),
        ("1", "f32[2]", Role.input, None),
    ]
    assert [str(entry.spec) for entry in program.results] == ["f32[2]"]
    assert program.flatten_arguments(1, 2) == [1, 2]
    assert program.unflatten_results([3]) == 3
    assert str(program) == f"Program {program.digest[:12]} (0: f32[2], 1: f32[2]) -> (0: f32[2])"


def test_the_only_public_function_is_main_whatever_its_name() -> None:
    program = Program.parse(function("forward") + function("other", "private"))
    assert "@main" in program.text
    np.testing.assert_array_equal(pcp.plan(program, cache=False).run(*np.ones((2, 2), np.float32)), [2, 2])


def test_one_called_main_is_chosen_among_several() -> None:
    assert Program.parse(function("other") + function("main")).arguments[1].name == "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            function("f") + function("g"),
            "needs one public function, or one called main; this module has: f, g",
        ),
        (function("f", "private"), "needs one public function, or one called main; this module has: none"),
        ("module {}", "this module has: none"),
        ("func.func @main(", "the program does not parse:\n.*1:"),
        ("", "this module has: none"),
        (function("main").replace("tensor<2xf32> {", "tensor<3xf32> {"), "the program does not"),
        (
            "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }",
            r"tensor<\?xf32> is not a tensor of static shape",
        ),
        (
            "func.func @main(%a: i32) -> i32 { return %a : i32 }",
            "i32 is not a tensor of static shape",
        ),
        (
            "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> "
            'attributes {pcp.arguments = "[[["} { return %a : tensor<2xf32> }',
            "the attribute pcp.arguments of the program is not a valid structure",
        ),
        (
            "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> "
            'attributes {pcp.results = "[\\22list\\22,[],[]]"} { return %a : tensor<2xf32> }',
            "the nesting written in the program does not fit its arguments and results",
        ),
        (
            'func.func @main(%a: tensor<2xf32> {pcp.role = "boss"}) -> tensor<2xf32> { return %a : tensor<2xf32> }',
            "argument 0 has the role 'boss'; expected one of weight, state, input",
        ),
        (
            "func.func @main(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<3xf32> "
            "{ %0 = stablehlo.constant dense<1.0> : tensor<3xf32> return %0 : tensor<3xf32> }",
            r"argument 0 of f32\[2\] is donated to result 0 of f32\[3\]; only equal types share memory",
        ),
        (
            "func.func @main(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}, "
            "%b: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> { return %a : tensor<2xf32> }",
            "arguments 0 and 1 are both donated to result 0",
        ),
        (
            "func.func @main(%a: tensor<2xf32> {tf.aliasing_output = 7 : i32}) -> tensor<2xf32> "
            "{ return %a : tensor<2xf32> }",
            "argument 0 is donated to result 7, but there are 1 results",
        ),
    ],
)
def test_what_is_no_program_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        Program.parse(text)


@pytest.mark.parametrize(
    "source", [b"ML\xefR", b"ML\xefRgarbage", b"\0\1\2", b"ML\xefR\x01StableHLO_v1.0.0\0"]
)
def test_bytes_that_are_no_program_are_refused(source: bytes) -> None:
    with pytest.raises(InvalidProgram, match="the program does not parse"):
        Program.parse(source)


def test_recursion_is_refused() -> None:
    program = Program.parse(
        "func.func @main(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = call @f(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }"
        "func.func private @f(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = call @g(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }"
        "func.func private @g(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = call @f(%a) : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }"
    )
    with pytest.raises(
        InvalidProgram, match=r"functions of the program call themselves, .*: (f -> g -> f|g -> f -> g)"
    ):
        assert program.digest


@pytest.fixture
def traced() -> Program:
    def step(state: dict[str, Any], x: pcp.Tensor) -> tuple[dict[str, Any], list[pcp.Tensor]]:
        return {"w": state["w"] + x, "n": state["n"]}, [x.sum()]

    state = {"w": pcp.spec((3,), "bf16", "state"), "n": pcp.spec((), "u64", "state")}
    return pcp.trace(step, state, pcp.spec((3,), "bf16"))


def signature(program: Program) -> tuple[Any, ...]:
    return program.arguments, program.results, program.argument_tree, program.result_tree


@pytest.mark.parametrize(
    "copied",
    [
        lambda p: Program.parse(p.bytecode),
        lambda p: Program.parse(p.text),
        lambda p: Program.from_module(p.module()),
        lambda p: Program.from_artifact(p.artifact()),
        lambda p: pickle.loads(pickle.dumps(p)),
    ],
    ids=["bytecode", "text", "module", "artifact", "pickle"],
)
def test_every_form_keeps_the_signature_and_the_digest(traced: Program, copied: Any) -> None:
    other = copied(traced)
    assert signature(other) == signature(traced)
    assert other.digest == traced.digest
    assert [entry.name for entry in other.arguments] == ["state.n", "state.w", "x"]
    assert [entry.alias for entry in other.arguments] == [0, 1, None]


def test_a_program_is_a_value(traced: Program) -> None:
    assert Program.parse(traced.bytecode) == traced
    assert len({traced, Program.parse(traced.bytecode)}) == 1
    assert copy.copy(traced) is copy.deepcopy(traced) is traced
    with pytest.raises(AttributeError):
        traced.bytecode = b""  # type: ignore[misc]  # which is the point


def test_a_module_is_the_callers_to_change(traced: Program) -> None:
    module, before = traced.module(), traced.text
    module.body.operations[0].erase()
    assert traced.text == before


def test_the_artifact_is_the_same_each_time_and_has_no_locations(traced: Program) -> None:
    assert traced.artifact() == traced.artifact() == Program.from_artifact(traced.artifact()).artifact()
    assert Path(__file__).name.encode() not in traced.artifact()
    assert Path(__file__).name.encode() in traced.bytecode


def test_an_artifact_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidProgram, match="no portable StableHLO artifact up to version"):
        Program.from_artifact(b"nothing")


def test_arguments_nested_otherwise_are_refused(traced: Program) -> None:
    with pytest.raises(TreeMismatch, match="argument is a tuple of 1, but the program expects a tuple of 2"):
        traced.flatten_arguments({"w": 1, "n": 2})


def test_a_training_step_is_pickled_with_its_optimizer() -> None:
    loss = pcp.trace(lambda p, x: ((p * x) ** 2).sum(), pcp.spec((3,), "f32"), pcp.spec((3,), "f32"))
    step = training_step(loss, sgd(0.1))
    other = pickle.loads(pickle.dumps(step))
    assert type(other) is TrainingStep
    assert other.digest == step.digest
    assert sorted(other.initial_state(np.ones(3, np.float32))) == ["optimizer", "params", "step"]
