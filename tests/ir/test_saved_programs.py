"""Programs that format 1 holds stay readable, and keep their digests: files in `saved/`, written once and never again."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir import Program

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
    "arithmetic": "5ccfa76972ea219303b8e9d361eba71f2f9b5ba9cb62aa5ffb5f6a71004c9f27",
    "counter": "979b151372a642563a6b42a868ea134803d43b61cabed7ab1d1f2711c15ed15b",
    "loop": "9a5251b6e128be86d9176348180aba8577b491dc6d83e2a70abb6ce962821408",
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
    assert repr(found) == repr(expected)
