"""Mistakes of the first hour in Python: what each is told. All run in this process, on programs that take microseconds."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.errors import PCPError

RNG = np.random.default_rng()
X, W = RNG.standard_normal((4, 3)).astype(np.float32), RNG.standard_normal((3, 2)).astype(np.float32)
PROGRAM = pcp.trace(lambda x, w: (x @ w).sum(axis=1), pcp.spec((4, 3), "f32"), pcp.spec((3, 2), "f32"))
OPEN = pcp.trace(lambda x: 2 * x, pcp.spec(("batch", 3), "f32"))
PLAN = pcp.plan(PROGRAM)
OPEN_PLAN = pcp.plan(OPEN)

Mistake = tuple[Callable[[], Any], str, str]
"""What is written, the error's type, and what its message says."""


def by_parity(x: Any) -> Any:
    return pcp.sin(x) if x.shape[0] % 2 else pcp.cos(x)


def in_a_loop(x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = pcp.tanh(x)
    return x


TRACING: list[Mistake] = [
    (
        lambda: pcp.trace(lambda x, w: x @ w, X),
        "WrongArguments",
        "pcp.trace: a function of (x, w) was given 1 argument: missing a required argument: 'w'; expected one",
    ),
    (lambda: pcp.trace(lambda x: x), "WrongArguments", "a function of (x) was given no arguments"),
    (lambda: pcp.trace(by_parity, X, W), "WrongArguments", "by_parity(x) was given 2 arguments: too many"),
    (lambda: pcp.trace(lambda x: x, "f32"), "InvalidArgument", "give an array or pcp.spec(shape, dtype)"),
    (
        lambda: pcp.trace(lambda x: x, X, roles=["state", "input"]),
        "WrongArguments",
        "roles=['state', 'input'] was given for 1 argument; expected a list with one role for each, such as ['input']",
    ),
    (lambda: pcp.trace(lambda x: x, X, roles=["wieght"]), "UnknownRole", "(did you mean 'weight'?)"),
    (lambda: pcp.spec((2,), "f32", "static"), "UnknownRole", "(did you mean 'state'?); expected 'weight' (bound"),
    (lambda: pcp.spec((2,), "flaot32"), "UnknownDType", "'flaot32' is not an element type (did you mean 'float32'?)"),
    (lambda: pcp.spec((2,), "fp32"), "UnknownDType", "(did you mean 'f32'?); choose one of bool, i8,"),
    (lambda: pcp.spec((2,), "f4"), "UnknownDType", "where NumPy reads it as float32, write 'f32'"),
    (lambda: pcp.spec((2.0, 3), "f32"), "InvalidShape", "every size must be a non-negative integer"),
    (lambda: pcp.spec(("batch size", 3), "f32"), "InvalidSize", "'batch size' is no size; expected a number, a name"),
    (
        lambda: pcp.trace(lambda x, w: x @ w, X, X),
        "ShapeMismatch",
        "matmul: shapes (4, 3) and (4, 3) do not fit",
    ),
    (lambda: pcp.trace(lambda x: x if x.sum() > 0 else -x, X), "TensorHasNoValue", "use pcp.where to choose"),
    (lambda: pcp.trace(by_parity, pcp.spec(("n",), "f32")), "BuiltDifferently", "stablehlo.sine %arg0 : tensor<"),
    (lambda: pcp.trace(in_a_loop, pcp.spec(("n",), "f32")), "SizeHasNoNumber", "loop by pcp.scan or pcp.fori_loop"),
    (
        lambda: pcp.trace(lambda x: x, pcp.spec(("n",), "f32"), constraints=["n !! 3"]),
        "InvalidConstraint",
        "'n !! 3' is no constraint; expected one comparison of sizes",
    ),
    (lambda: OPEN.at(bathc=8), "SizesRefused", "the program takes batch: give .at(batch=...)"),
    (lambda: pcp.from_jax(3), "ProgramExpected", "an int was given: give the function itself"),
    (lambda: pcp.from_jax(jax.numpy.tanh), "WrongArguments", "pcp.from_jax: tanh("),
    (
        lambda: pcp.from_jax(lambda x, y: x + y, X, roles="weight"),
        "WrongArguments",
        "pcp.from_jax: a function of (x, y) was given 1 argument",
    ),
]  # fmt: skip

PLANNING: list[Mistake] = [
    (lambda: pcp.load("missing"), "UnreadableFile", "cannot read the program missing: there is no such file or folder"),
    (lambda: pcp.load(Path.cwd()), "UnreadableFile", "it is a folder; expected a file"),
    (lambda: pcp.load("/proc/self/stat"), "NotAProgram", "expected a file written by Program.save"),
    (lambda: PROGRAM.save("no/such/step.pcp"), "UnwritableFile", "cannot write no/such/step.pcp: there is no such"),
    (lambda: pcp.Path.load("fast.json"), "UnreadableFile", "cannot read the path fast.json: there is no such file"),
    (lambda: pcp.plan("step.pcp"), "ProgramExpected", "read a file with pcp.load(file)"),
    (lambda: pcp.plan([PROGRAM]), "ProgramExpected", "a list was given: programs come from pcp.trace"),
    (lambda: pcp.plan(PROGRAM, "cdua:0"), "UnknownDevice", "'cdua:0' is not a device of this machine; choose one of: "),
    (lambda: pcp.plan(PROGRAM, "tpu:0"), "UnknownDevice", "JAX has no plug-in for tpu here"),
    (lambda: pcp.plan(PROGRAM, 3), "UnknownDevice", "the device is 3; expected a name as 'cpu:0', or a Device"),
    (lambda: pcp.plan(PROGRAM, []), "NoPlaces", "the list of devices is empty; give one or more"),
    (lambda: pcp.plan(PROGRAM, "foo:cpu"), "UnknownDevice", "'foo:cpu' is not a device of this machine"),
    (lambda: pcp.plan(PROGRAM, tolerance="1e-2"), "InvalidTolerance", "expected a number from 0"),
    (lambda: pcp.plan(PROGRAM, memory="lots"), "InvalidMemoryLimit", "give one like 1073741824, '2GiB' or '500MB'"),
    (lambda: pcp.plan(PROGRAM, memory=10), "OutOfMemory", "the program needs at least 88 bytes on "),
    (lambda: pcp.plan(PROGRAM, tolerance=1e-2, budget=-1), "InvalidBudget", "expected seconds from 0"),
    (lambda: pcp.plan(PROGRAM, path="fast.json"), "NotAPath", "or pcp.Path.load(file) reads it"),
    (lambda: pcp.plan(PROGRAM, binds=("weights",)), "InvalidBinds", "the program takes x, w: give names of these"),
    (
        lambda: pcp.find_nan(PLAN, X, W),
        "ProgramExpected",
        "pcp.find_nan takes a Program; a pcp.planning.plan.Plan was given: give the Program that it was made of, its .program",
    ),
    (lambda: pcp.find_nan(by_parity, X), "ProgramExpected", "pcp.trace(function, specs...)"),
    (lambda: pcp.grad("loss"), "ProgramExpected", "the text 'loss' was given"),
]  # fmt: skip

VALUES: list[Mistake] = [
    (lambda: pcp.trace(lambda x: x.sum().item(), X), "TensorHasNoValue", "return it and read the result, or compute with"),
    (lambda: pcp.trace(lambda x: f"{x.sum():.3f}", X), "TensorHasNoValue", "it has no value during tracing"),
    (lambda: pcp.trace(lambda x: float(x.sum()), X), "TensorHasNoValue", "was used as a Python number"),
    (lambda: pcp.trace(lambda x: np.asarray(x), X), "TensorHasNoValue", "was given to NumPy"),
    (lambda: pcp.trace(lambda x: x.numpy(), X), "TensorHasNoValue", "return it and read the result"),
    (lambda: pcp.optimizers.adamw("1e-3"), "InvalidOptimizer", "expected a learning rate of at least 0, or a schedule"),
    (lambda: pcp.training_step(lambda w: w.sum(), "sgdd", X), "InvalidOptimizer", "as pcp.optimizers.sgd(1e-3) makes"),
    (lambda: pcp.jit(3), "ProgramExpected", "pcp.jit takes a Program or a function of Tensors; an int was given"),
    (lambda: pcp.jit(lambda x: x + 1)("x"), "NoArrayGiven", "argument x is 'x', a str; expected arrays, numbers"),
    (lambda: pcp.jit(lambda x, y: x @ y)(X, X), "ShapeMismatch", "shapes (4, 3) and (4, 3) do not fit"),
]  # fmt: skip

RUNNING: list[Mistake] = [
    (
        lambda: PLAN.run(np.ones((5, 3), np.float32), W),
        "ArgumentShapeMismatch",
        "argument x has shape (5, 3); the plan expects f32[4,3]; trace the function again for other shapes, or once for all "
        "sizes: pcp.spec(('n', 3), 'f32')",
    ),
    (lambda: PLAN.run(X.astype(np.float64), W), "ArgumentDTypeMismatch", "convert it with .astype('float32')"),
    (lambda: PLAN.run(X), "ArgumentCountMismatch", "1 argument was given; the plan takes 2: x, w"),
    (lambda: PLAN.run(X, W, W), "ArgumentCountMismatch", "3 arguments were given; the plan takes 2: x, w"),
    (lambda: PLAN.run(None, W), "TreeMismatch", "argument x is None; the plan expects an array of f32[4,3]"),
    (lambda: PLAN.run([[1.0]], W), "TreeMismatch", "argument x is a list; the plan expects an array"),
    (lambda: OPEN_PLAN.run(W), "SizesRefused", "argument x has shape (3, 2); expected f32[batch,3]"),
]  # fmt: skip


def said(mistake: Callable[[], Any]) -> PCPError:
    with pytest.raises(PCPError) as raised:
        mistake()
    return raised.value


@pytest.mark.parametrize(
    "kind", [TRACING, PLANNING, VALUES, RUNNING], ids=["tracing", "planning", "values", "running"]
)
def test_what_is_told(kind: list[Mistake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = [(said(mistake), error, text) for mistake, error, text in kind]
    assert [each for each in told if type(each[0]).__name__ != each[1] or each[2] not in str(each[0])] == []


def test_a_call_of_a_plan_names_the_users_line() -> None:
    for mistake, _, _ in RUNNING:
        line = mistake.__code__.co_firstlineno
        assert f"\n  at {__file__}:{line}" in f"{said(mistake)}".replace(
            f"{__file__}:{line + 1}", f"{__file__}:{line}"
        )


def test_a_place_of_another_library() -> None:
    """What JAX and PyTorch write for a device is taken."""

    class Torch:
        type, index = "cpu", None

    for place in (jax.devices("cpu")[0], Torch()):
        assert str(pcp.Target.of(place).device) == "cpu:0"


def test_sizes_are_shown_as_they_are_written() -> None:
    [entry] = OPEN.arguments
    assert repr(entry) == "SymbolicArgument(name='x', spec=f32[batch,3], role=<Role.input: 'input'>)"
    assert f"{entry.spec.shape}" == "(batch, 3)"


def test_the_line_that_differs_is_shown_and_not_one_that_differs_in_its_sizes() -> None:
    calls = itertools.cycle([pcp.sin, pcp.sin, pcp.cos])
    told = str(said(lambda: pcp.trace(lambda x: next(calls)(x), pcp.spec(("n",), "f32"))))
    assert "stablehlo.sine" in told
    assert "stablehlo.cosine" in told
    assert "#loc" not in told
