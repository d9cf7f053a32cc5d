"""Random uses of JAX's functions give JAX's values and gradients in float64, or are refused by name."""

import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run, run_in_jax
from tests.importers.jax_fuzz import FAMILIES, Draw

import pcp
from pcp.errors import PCPError

SEEDS = int(os.environ.get("PCP_FUZZ_SEEDS", "60"))
FIRST = int(os.environ.get("PCP_FUZZ_FIRST", "1000"))
Use = tuple[str, Callable[..., Any], list[np.ndarray[Any, Any]]]


def drawn(name: str, seed: int) -> Use:
    """The use of a family that a seed stands for."""
    words, function, *inputs = FAMILIES[name](Draw(seed, *name.encode()))
    return f"{name} {seed}: {words} of {[f'{x.dtype}{list(x.shape)}' for x in inputs]}", function, inputs


def whole(uses: Sequence[Use]) -> Callable[..., Any]:
    """The uses side by side: a weighted sum of the finite floating-point outputs, and all outputs."""

    def function(arguments: list[list[Any]], others: list[list[Any]]) -> Any:
        total, outputs = jnp.zeros(()), []
        for number, (_, use, inputs) in enumerate(uses):
            given = [
                a if x.dtype == float else b
                for x, a, b in zip(inputs, arguments[number], others[number], strict=True)
            ]
            found = jax.tree.leaves(use(*given))
            for y in found:
                for part in (y.real, y.imag) if jnp.iscomplexobj(y) else (y,):
                    if jnp.issubdtype(part.dtype, jnp.floating):
                        finite = jnp.where(jnp.isfinite(part), part, 0)
                        total = (
                            total
                            + (finite * jnp.cos(jnp.arange(part.size).reshape(part.shape) + number)).sum()
                        )
            outputs.append(found)
        return total, outputs

    return function


def compare(uses: Sequence[Use], refused: dict[str, PCPError], wrong: list[str]) -> int:
    """How many are equal; the others are entered in what is given."""
    if not uses:
        return 0
    floats = [[x if x.dtype == float else np.zeros(()) for x in inputs] for _, _, inputs in uses]
    others = [[np.zeros((), np.int64) if x.dtype == float else x for x in inputs] for _, _, inputs in uses]
    function = whole(uses)
    try:
        (_, theirs), expected = run_in_jax(jax.value_and_grad(function, has_aux=True), floats, others)
    except Exception:  # JAX itself refuses
        if len(uses) == 1:
            return 0
        return sum(compare(half, refused, wrong) for half in (uses[: len(uses) // 2], uses[len(uses) // 2 :]))
    try:
        specs = jax.tree.map(lambda x: pcp.spec(x.shape, str(x.dtype)), (floats, others))
        program = pcp.value_and_grad(pcp.from_jax(function, *specs), wrt=0, has_aux=True)
        (_, mine), found = run(program, floats, others)
    except Exception as error:
        if len(uses) > 1:
            return sum(
                compare(half, refused, wrong) for half in (uses[: len(uses) // 2], uses[len(uses) // 2 :])
            )
        if isinstance(error, PCPError):
            refused[uses[0][0]] = error
        else:
            wrong.append(f"{uses[0][0]}: raw {type(error).__name__}: {str(error)[:1000]}")
        return 0
    equal = 0
    for (words, _, _), *pairs in zip(uses, theirs, mine, expected, found, strict=True):
        fault = _difference("outputs", *pairs[:2]) or _difference("gradients", *pairs[2:])
        equal += not fault
        wrong += [f"{words}: {fault}"] if fault else []
    return equal


def _difference(what: str, theirs: Any, mine: Any) -> str:
    for one, other in zip(jax.tree.leaves(theirs), jax.tree.leaves(mine), strict=True):
        a, b = np.asarray(one), np.asarray(other)
        if a.dtype != b.dtype or a.shape != b.shape or not np.allclose(b, a, 1e-8, 1e-8, equal_nan=True):
            return f"{what}: {b.tolist()} is not {a.tolist()}"
    return ""


def see(uses: Sequence[Use]) -> int:
    """Compare them, and see that nothing differs and that what is refused is named."""
    refused: dict[str, PCPError] = {}
    wrong: list[str] = []
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        equal = compare(uses, refused, wrong)
    assert not wrong, "\n".join(wrong)
    for words, error in refused.items():
        assert re.search(r"\w{3,}", str(error)), f"{words}: {error}"
    return equal


def test_a_few_of_each_family_are_those_of_jax() -> None:
    assert see([drawn(name, seed) for name in FAMILIES for seed in range(2)]) > len(FAMILIES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FAMILIES)
def test_many_of_a_family_are_those_of_jax(name: str) -> None:
    see([drawn(name, seed) for seed in range(FIRST, FIRST + SEEDS)])
