"""Transformations of symbolic programs: what they make at a size is what they make of the Program at that size."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir.expecting import ProgramExpected
from pcp.rewrite import simplify
from pcp.symbolic import SizesNeeded, SymbolicProgram


def scalar(w: pcp.Tensor, x: pcp.Tensor) -> pcp.Tensor:
    return (pcp.sin(x @ w) ** 2).sum() + (x * 1.0).mean()


def vector(w: pcp.Tensor, x: pcp.Tensor) -> pcp.Tensor:
    return (pcp.tanh(x @ w) * x.shape[0]).sum(axis=0)


@functools.cache
def program_of(function: Callable[..., Any]) -> Any:
    return pcp.trace(function, pcp.spec((4, 3), "f32", "weight"), pcp.spec(("n", 4), "f32"))


TRANSFORMATIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "grad": (scalar, pcp.grad),
    "grad of the input": (scalar, lambda p: pcp.grad(p, wrt=1)),
    "value_and_grad": (scalar, lambda p: pcp.value_and_grad(p, wrt=(0, 1))),
    "grad of grad": (scalar, lambda p: pcp.vjp(pcp.grad(p), wrt=0)),
    "vjp": (vector, pcp.vjp),
    "jvp": (vector, pcp.jvp),
    "hvp": (scalar, pcp.hvp),
    "jacobian": (vector, pcp.jacobian),
    "hessian": (scalar, pcp.hessian),
    "simplify": (vector, simplify),
    "vmap": (vector, lambda p: pcp.vmap(p, (None, 0), size=5)),
    "vmap by name": (vector, lambda p: pcp.vmap(p, in_axes=(None, 1), out_axes=1, size=6)),
    "training_step": (scalar, lambda p: pcp.training_step(p, pcp.optimizers.sgd(0.1), clip_norm=1.0)),
    "accumulate": (scalar, lambda p: pcp.training_step(p, pcp.optimizers.adamw(0.1), accumulate=3)),
    "remat": (scalar, lambda p: pcp.grad(p, remat="dots_saveable")),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_transformation(name: str) -> None:
    function, change = TRANSFORMATIONS[name]
    program = program_of(function)
    made = change(program)
    assert isinstance(made, SymbolicProgram)
    for size in (int(np.random.default_rng().integers(2, 500)), 1000):
        assert made.at(n=size).digest == change(program.at(n=size)).digest, size


def test_the_number_of_samples_is_a_symbol() -> None:
    program = program_of(vector)
    for source in (program, program.at(n=7)):
        made: Any = pcp.vmap(source, (None, 0), size="samples")
        assert made.symbols == (("samples", "n") if source is program else ("samples",))
        sizes = {"samples": 11, "n": 7} if source is program else {"samples": 11}
        assert made.at(**sizes).digest == pcp.vmap(program.at(n=7), (None, 0), size=11).digest
    assert str(pcp.vmap(program, (None, 0), size="n").arguments[1].spec) == "f32[n,n,4]"
    with pytest.raises(ProgramExpected, match=r"pcp.vmap with a symbol as its size takes a P"):
        pcp.vmap(vector, size="samples")


def test_what_takes_only_programs_says_what_to_do() -> None:
    with pytest.raises(ProgramExpected, match=r"its sizes are symbols, so give them: program.at\(n=...\)"):
        next(iter(pcp.explore(program_of(vector))))
    with pytest.raises(
        SizesNeeded,
        match=r"to_stablehlo was asked .*; expected a Program, .*: program.at\(n=...\).to_stablehlo",
    ):
        program_of(vector).to_stablehlo()
    with pytest.raises(SizesNeeded, match="bytecode was asked of a symbolic program"):
        next(iter(pcp.paths(program_of(vector))))
    assert not hasattr(program_of(vector), "elsewhere")
