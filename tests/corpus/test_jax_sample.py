"""One program of every family of JAX's, and every refusal. All programs: tests/peers/test_corpus.py."""

import pytest

from tests.corpus import OF_JAX, cases_of, sampled
from tests.corpus.arguments import normal
from tests.corpus.case import Case, Refusal
from tests.corpus.checking import check
from tests.corpus.comparison import Mismatch

SAMPLE = sampled(tuple(family for family in OF_JAX if family != "refusals"), 1)


@pytest.mark.parametrize(("family", "case"), SAMPLE, ids=[f"{family}/{case.name}" for family, case in SAMPLE])
def test_gradients_are_those_of_jax(family: str, case: Case) -> None:
    check(family, case)


@pytest.mark.parametrize("case", cases_of("refusals"), ids=lambda case: case.name)
def test_refusals(case: Case) -> None:
    check("refusals", case)


def test_another_gradient_is_found_in_every_order() -> None:
    other = Case("other", lambda x: x**2, normal((3,)), reference=lambda x: x**2 * (1 + 1e-9))
    with pytest.raises(Mismatch, match="1e-10"):
        check("elementwise", other)


def test_a_missing_refusal_is_found() -> None:
    with pytest.raises(Mismatch, match="nothing was raised"):
        check(
            "refusals",
            Case("x", lambda x: x * 2, normal((3,)), refusal=Refusal("NoDerivative", "x"), note="a test"),
        )


def test_another_refusal_is_found() -> None:
    case = Case(
        "x", lambda x: x * 2, normal((3,)), wrt=(4,), refusal=Refusal("NoDerivative", "x"), note="a test"
    )
    with pytest.raises(Mismatch, match="UnknownArgument"):
        check("refusals", case)


def test_a_case_without_gradients_is_no_case() -> None:
    with pytest.raises(ValueError, match="every gradient is zero"):
        check("elementwise", Case("flat", lambda x: x * 0, normal((3,))))


def test_a_loose_tolerance_needs_a_note() -> None:
    with pytest.raises(ValueError, match="say in `note`"):
        Case("loose", abs, normal((3,)), tolerance=1e-3)


def test_names_are_unique_in_a_family() -> None:
    for family in OF_JAX:
        names = [case.name for case in cases_of(family)]
        assert len(names) == len(set(names))
