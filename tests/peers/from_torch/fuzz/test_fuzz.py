"""Random uses of PyTorch's operations give PyTorch's values and gradients, or are refused by name.

The few that run always were chosen so that each family is there; the long test draws others for every commit.
"""

import os
import re
from collections.abc import Sequence

import pytest
from tests.peers.from_torch.fuzz.beside import Drawn, Outcome, compare, drawn
from tests.peers.from_torch.fuzz.drawing import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's own, of what is deprecated or slow

NAMED = re.compile(r"\w+\.\w+|torch\.export refuses")
SEEDS = int(os.environ.get("PCP_FUZZ_SEEDS", "60"))
FIRST = int(os.environ.get("PCP_FUZZ_FIRST", "1000"))


def see(uses: Sequence[Drawn]) -> Outcome:
    """Compare them, and see that nothing differs and that what is refused is named."""
    outcome = compare(uses)
    assert not outcome.different, "\n".join(outcome.different)
    assert not outcome.raw, "\n".join(outcome.raw)
    for label, error in outcome.refused.items():
        assert NAMED.search(str(error)), f"{label}: {error}"
    return outcome


def test_a_few_of_each_family_are_those_of_torch() -> None:
    uses = [drawn(name, seed) for name in FAMILIES for seed in range(3)]
    assert see(uses).equal > len(uses) / 2


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FAMILIES)
def test_many_of_a_family_are_those_of_torch(name: str) -> None:
    see([drawn(name, seed) for seed in range(FIRST, FIRST + SEEDS)])
