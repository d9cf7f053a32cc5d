"""The digest of every operation, derivative, layer and model outlives every form that a program travels in."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from tests.ir.every_operation import (
    LAYERS,
    bare,
    by_derivative,
    by_operation,
    layers,
    models,
)

import pcp
from pcp import nn
from pcp.ir import Program, bindings

Programs = Callable[[], Iterable[tuple[str, Program]]]


def assert_the_same(name: str, program: Program, *others: Program) -> None:
    for other in others:
        assert other.digest == program.digest, f"{name}:\n{program.text}\nbecame\n{other.text}"


@pytest.mark.cpu
@pytest.mark.parametrize(
    "programs",
    [
        partial(by_operation, 3),
        partial(by_derivative, 3),
        bare,
        models,
        layers,
        pytest.param(by_operation, marks=pytest.mark.long),
        pytest.param(by_derivative, marks=pytest.mark.long),
    ],
)
def test_text_and_artifacts_leave_it_alone(programs: Programs) -> None:
    for name, program in programs():
        travelled = Program.from_artifact(program.artifact())
        assert_the_same(name, program, Program.parse(program.text), travelled)


@pytest.mark.parametrize("programs", [bare, models, layers])
def test_bytecode_and_files_leave_it_alone(programs: Programs, tmp_path: Path) -> None:
    for name, program in programs():
        program.save(tmp_path / "saved.pcp")
        rewritten = bindings.bytecode_of(bindings.parse_module(program.bytecode))
        assert_the_same(name, program, pcp.load(tmp_path / "saved.pcp"), Program.parse(rewritten))


def test_what_was_written_out_once_is_written_out_for_good() -> None:
    for name, program in layers():
        once = Program.from_artifact(program.artifact())
        assert_the_same(name, once, Program.from_artifact(once.artifact()), Program.parse(once.text))


def test_every_layer_is_among_them() -> None:
    public = {name for name, entry in vars(nn).items() if inspect.isfunction(entry)}
    # What makes arrays of arrays, fields of a class, or models of models makes no program.
    assert public - {"quantise", "buffer", "split", "merge"} <= set(LAYERS)
