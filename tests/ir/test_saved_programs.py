"""Programs that format 1 holds stay readable, and keep their digests: files in `saved/`, written once and never again."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir import Program
from pcp.ir.tree import flatten

SAVED = Path(__file__).parent / "saved"


def arithmetic() -> Program:
    return pcp.trace(
        lambda w, x: {"y": pcp.tanh(x @ w["a"]) + w["b"], "n": x.sum()},
        {"a": np.ones((3, 2), np.float32), "b": np.ones(2, np.float32)},
        pcp.spec((4, 3), "f32"),
    )


def counter() -> Program:
    return pcp.trace(
        lambda total, x: (total + x, pcp.where(total > 2, total, 0)),
        pcp.spec((3,), "f64", role="state"),
        pcp.spec((3,), "f64"),
    )


def loop() -> Program:
    return pcp.trace(lambda x: pcp.fori_loop(0, 5, lambda _, y: y * x, x), pcp.spec((), "f32"))


PROGRAMS: dict[str, Callable[[], Program]] = {"arithmetic": arithmetic, "counter": counter, "loop": loop}
DIGESTS = {
    "arithmetic": "0e821f59ca1266c2014a81545eebf0b1f9886ace6dd67be4c36c9f505bb84261",
    "counter": "d9a5d7c92428b76afaa24f48d2df8dc7e784d084969cb5bd500d87b3de259545",
    "loop": "7a8aeb7c103bc4d2ffd076ef71238417dc48bb0ac3810d0ea75a4cfc6be7c030",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_of_format_1_is_the_program_that_was_saved(name: str) -> None:
    saved = pcp.load(SAVED / f"{name}.pcp")
    assert saved.digest == DIGESTS[name]
    made = PROGRAMS[name]()
    assert saved.arguments == made.arguments
    assert saved.results == made.results
    assert (saved.argument_tree, saved.result_tree) == (made.argument_tree, made.result_tree)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_of_format_1_computes_the_same(name: str) -> None:
    saved, made = pcp.load(SAVED / f"{name}.pcp"), PROGRAMS[name]()
    random = np.random.default_rng(11)
    leaves = [np.asarray(random.normal(size=e.spec.shape), e.spec.dtype.numpy) for e in saved.arguments]
    arguments = saved.argument_tree.unflatten(leaves)
    found, expected = run(saved, *arguments), run(made, *arguments)
    assert repr(flatten(found)[0]) == repr(flatten(expected)[0])  # the file knows no order of keys
