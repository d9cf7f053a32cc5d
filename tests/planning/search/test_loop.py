"""What a search asks next is a function of its evidence: gone through once more from the beginning, it asks the same."""

from collections.abc import Generator
from typing import Any

import pytest
from tests.replay.scenarios import SEARCHES
from tests.replay.searches import Search as Driven

from pcp.planning.exploration import exploration
from pcp.planning.search import loop
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.loop import Over, next_asked
from pcp.planning.search.question import Asked, Question, Telling, Told

pytestmark = pytest.mark.cpu

WINGS = {
    "kernels": ["layers on a processor", "noise", "slow calls", "layers on a GPU", "interrupted later"],
    "kernels in little time": [
        "little time on a GPU",
        "candidates fail for a while",
        "no time, but similar programs",
    ],
    "memory": ["in less memory, values are made again", "in less memory in little time"],
    "places": ["some operations are faster there", "places in little time"],
    "pieces": ["piece by piece"],
    "walked": ["explored in two places", "listed in two places"],
    "forms": ["equal programs", "equal programs, surprising"],
}
PREFIXES = 5


def key(asked: Asked | Over[Any]) -> tuple[str, ...]:
    """What was asked, in words that another process would use, too."""
    if isinstance(asked, Question):
        return asked.subject, asked.label, asked.what
    return ("over",) if isinstance(asked, Over) else (asked.what,)


class Noted:
    """Every search that is driven, and what it asked after it was told how much."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.searches: list[tuple[loop.Search[Any], Evidence]] = []
        self.asked: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
        self.ended: set[int] = set()
        walked, before = loop.walked, Telling.before

        def noting(search: loop.Search[Any], evidence: Evidence) -> Generator[Any, None, Any]:
            if not evidence._telling.is_copy:
                self.searches.append((search, evidence))
            result = yield from walked(search, evidence)
            self.ended.add(id(evidence))
            return result

        def telling(own: Telling, asked: Asked | None) -> Told | None:
            if asked is not None and not own.is_copy:
                # The time, which it was told last, is told when it asks.
                self.asked.setdefault(id(own), []).append((len(own._told) - 1, key(asked)))
            return before(own, asked)

        for module in (loop, exploration):
            patch.setattr(module, "walked", noting)
        patch.setattr(Telling, "before", telling)

    def check(self) -> int:
        """Compare what is asked after parts of what was told, the first and the last among them; how many were compared."""
        count = 0
        for search, evidence in self.searches:
            asked = self.asked.get(id(evidence._telling), [])
            every = max(1, len(asked) // PREFIXES)
            for after, expected in [*asked[::every], *asked[-1:]]:
                assert key(next_asked(search, as_it_was(evidence, after))) == expected
                count += 1
            assert id(evidence) not in self.ended or isinstance(next_asked(search, evidence), Over)
        return count


def as_it_was(evidence: Evidence, after: int) -> Evidence:
    """Evidence after so much was told."""
    before = evidence.again()
    before._telling._told = list(evidence._telling._told)[:after]
    return before


@pytest.mark.share(6)
@pytest.mark.parametrize("name", [name for names in WINGS.values() for name in names])
def test_what_is_asked_next_is_a_function_of_what_was_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = SEARCHES[name]
    if recorded.egglog:
        pytest.importorskip("egglog", reason="egglog is not installed")
    compared: list[int] = []

    def drive(search: Driven) -> None:
        noted = Noted(monkeypatch)
        recorded.drive(search)
        compared.append(noted.check())

    type(recorded)(drive, recorded.mood, recorded.bare, recorded.egglog).run()
    assert compared[0] > 2
