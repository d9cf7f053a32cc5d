"""Programs of JAX, flax, equinox and PyTorch: PCP's gradients are their framework's. A sample here, all in the long tests."""

from collections import Counter

import pytest
from tests.corpus import FAMILIES, OF_JAX, cases_of, sampled
from tests.corpus.case import Case
from tests.corpus.checking import check

OTHERS = tuple(family for family in FAMILIES if family not in OF_JAX)
SAMPLE = [*sampled(OF_JAX, 2, seed=1), *sampled(OTHERS, 4, seed=1)]
ALL = [(family, case) for family in FAMILIES for case in cases_of(family)]


def _ids(cases: list[tuple[str, Case]]) -> list[str]:
    return [f"{family}/{case.name}" for family, case in cases]


@pytest.mark.parametrize(("family", "case"), SAMPLE, ids=_ids(SAMPLE))
def test_a_sample(family: str, case: Case) -> None:
    check(family, case)


@pytest.mark.long
@pytest.mark.parametrize(("family", "case"), ALL, ids=_ids(ALL))
def test_all(family: str, case: Case) -> None:
    check(family, case)


def test_there_are_many_of_every_framework() -> None:
    counts = Counter(FAMILIES[family] for family, _ in ALL)
    assert sum(counts.values()) >= 300
    assert set(counts) == {"JAX", "flax", "equinox", "PyTorch"}
    assert min(counts.values()) >= 30
    assert max(Counter(_ids(ALL)).values()) == 1
