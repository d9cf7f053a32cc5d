"""Checks one case: its gradients against its framework's, or the error that it must end in."""

import re

import pcp
from tests.corpus import FAMILIES
from tests.corpus.case import Case
from tests.corpus.comparison import Mismatch, check_jax


def check(family: str, case: Case) -> float:
    """The greatest relative distance between PCP's gradients and the framework's; 0 where PCP must refuse, and does.

    Raises:
        Mismatch: the distance is greater than the case allows, or PCP does not refuse as it must.
        PCPError: PCP refuses what it must not.
    """
    compare = _compare_with_torch if FAMILIES[family] == "PyTorch" else check_jax
    if case.refusal is None:
        return compare(case)
    try:
        compare(case)
    except pcp.PCPError as error:
        if type(error).__name__ != case.refusal.error or not re.search(case.refusal.message, str(error)):
            raise Mismatch(f"{case.name}: {case.refusal} was to be raised, not {error!r}") from error
        return 0.0
    raise Mismatch(f"{case.name}: nothing was raised; {case.refusal} was to be")


def _compare_with_torch(case: Case) -> float:
    from tests.corpus.torch_comparison import check_torch

    return check_torch(case)
