"""Lives of the state machines among peers that say anything; `python -m pcp.distributed.simulator.fuzz` goes on for hours."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pcp.distributed.coordinator.log.records import UpdateAdmitted
from pcp.distributed.coordinator.rounds import leases, resumption, sharing
from pcp.distributed.coordinator.state import Turn
from pcp.distributed.coordinator.timing import Pace
from pcp.distributed.gossip import exchanger
from pcp.distributed.messages import Lease
from pcp.distributed.simulator.fuzz import gossip
from pcp.distributed.simulator.fuzz.__main__ import LIVES, Fuzz, live
from pcp.distributed.simulator.fuzz.corpus import Choices, Corpus, plan_of, words
from pcp.training.data import safetensors_file

FIXED = 4
SECONDS = 15.0
"""For the seeds of a commit, of all kinds."""
Patch = pytest.MonkeyPatch


def seed_of_the_commit() -> int:
    """Other seeds for each commit; 10^6 where there is none."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=6", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return 10**6 + (int(found, 16) if found else 0)


@pytest.mark.parametrize("kind", sorted(LIVES))
def test_nothing_that_is_said_breaks_it(kind: str) -> None:
    for seed in range(
        1 if kind == "guest" else FIXED
    ):  # each guest is of another run, which is lived without it, too
        assert not live(kind, seed)[2], (
            f"python -m pcp.distributed.simulator.fuzz --kind {kind} --plan {seed}"
        )


def test_nothing_breaks_it_with_the_seeds_of_the_commit() -> None:
    fuzz = Fuzz(seed_of_the_commit())
    print(f"seeds from {fuzz.seed} on")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        kind, plan, failure = fuzz.live()
        assert not failure, (
            f"python -m pcp.distributed.simulator.fuzz --kind {kind} --plan {words(plan)}: {failure}"
        )


def found(kind: str, lives: int = 150) -> str:
    """What the first life says that breaks."""
    fuzz = Fuzz(0, [kind])
    return next((failure for _ in range(lives) if (failure := fuzz.live()[2])), "")


def a_lease_that_is_forgotten_in_part(patch: Patch) -> None:
    patch.setattr(leases, "release_blobs", lambda _turn, _named: None)


def a_pace_without_bounds(patch: Patch) -> None:
    patch.setattr(Pace, "told", lambda pace, _: setattr(pace, "told_seconds", 5e-324))


def numbers_of_exchanges_that_end(patch: Patch) -> None:
    for module in (exchanger, gossip):
        patch.setattr(module, "number_after", lambda number: number + 1)


def a_lease_resumed_twice(patch: Patch) -> None:
    def anything_else(state: Any, member: Any, lease: Lease, cells: Any) -> str:
        admitted = [each for round in state.run.in_flight for each in round.admitted]
        known = any(each.lease_id == lease.lease_id for each in admitted)
        return (
            ""
            if known and all(state.pending.has(each) for each in cells)
            else unacceptable(state, member, lease, cells)
        )

    unacceptable = resumption._unacceptable
    patch.setattr(resumption, "_unacceptable", anything_else)


def a_lease_resumed_behind_another(patch: Patch) -> None:
    unacceptable = resumption._unacceptable

    def without_that(state: Any, member: Any, lease: Lease, cells: Any) -> str:
        return unacceptable(state, member, replace(lease, after=0), cells)

    patch.setattr(resumption, "_unacceptable", without_that)


def what_is_replaced_deleted_before_a_sync(patch: Patch) -> None:
    append = Turn.append

    def hasty(turn: Turn, record: Any, sync: bool = False) -> None:
        append(turn, record, sync and not isinstance(record, UpdateAdmitted))

    patch.setattr(Turn, "append", hasty)


def weights_of_the_middle_merged_beside_those_of_the_end(patch: Patch) -> None:
    patch.setattr(sharing, "earlier", lambda _turn, _held: [])


def an_auditor_asked_again(patch: Patch) -> None:
    class Nobody(set[int]):
        def add(self, _: int) -> None:
            """Forget."""

    from pcp.distributed.coordinator.audit import books

    made = books.Audit.__init__

    def forgetful(audit: books.Audit, *arguments: Any, **keywords: Any) -> None:
        made(audit, *arguments, **keywords)
        audit.passed_over = Nobody()

    patch.setattr(books.Audit, "__init__", forgetful)


def who_leaves_late_does_not_rest(patch: Patch) -> None:
    patch.setattr(leases, "waited_for", lambda _turn, _member: 0.0)


def who_fails_again_and_again_is_waited_for(patch: Patch) -> None:
    patch.setattr(leases, "_rests_shortly", lambda turn: bool(turn.state.roster.resting))


def headers_that_nest(patch: Patch) -> None:
    patch.setattr(safetensors_file, "RecursionError", KeyError, raising=False)


PLANTED = [
    ("shepherd", a_lease_that_is_forgotten_in_part, "named by leases"),
    ("shepherd", a_pace_without_bounds, "nothing can be planned"),
    ("shepherd", a_lease_resumed_twice, ""),
    ("shepherd", what_is_replaced_deleted_before_a_sync, "after a cut of power"),
    ("shepherd", weights_of_the_middle_merged_beside_those_of_the_end, "merged beside its own"),
    ("guest", who_leaves_late_does_not_rest, "beside a guest"),
    ("gossip", numbers_of_exchanges_that_end, ""),
    ("pushes", headers_that_nest, "RecursionError"),
]
RARE = [
    ("shepherd", a_lease_resumed_behind_another, "follows"),
    ("shepherd", an_auditor_asked_again, "asked twice"),
    ("guest", who_fails_again_and_again_is_waited_for, "beside a guest"),
]


def name_of(value: Any) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(
    ("kind", "plant", "says"),
    [*PLANTED, *(pytest.param(*each, marks=pytest.mark.long) for each in RARE)],
    ids=name_of,
)
def test_it_is_found(kind: str, plant: Callable[[Patch], None], says: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    failure = found(kind)
    assert failure
    assert says in failure


def test_a_life_that_goes_on_from_another_begins_like_it() -> None:
    def drawn(plan: Any, actions: int) -> list[float]:
        choices, numbers = Choices("shepherd", plan), []
        for _ in range(actions):
            choices.act()
            numbers.append(choices.random.random())
        return numbers

    alone, other = drawn(7, 5), drawn(8, 3)
    assert drawn(plan_of("7x2+8"), 5) == [*alone[:2], *other[:3]]


def test_what_led_to_something_new_is_gone_on_from() -> None:
    corpus = Corpus(Random(1))
    assert corpus.plan(5) == ((5, 0),)
    corpus.learn(((5, 0),), {"round": 3, "merge": 9})
    corpus.learn(((6, 0),), {"round": 3})
    begun = {corpus.plan(seed)[:-1] for seed in range(100)}
    assert begun == {(), ((5, 3),), ((5, 9),)}
    corpus.learn(((5, 3), (7, 0)), {"audit": 2, "verdict": 8})
    assert {corpus.plan(seed)[:-1] for seed in range(200)} == begun | {((5, 2),), ((5, 3), (7, 8))}
    assert plan_of(words(((5, 3), (7, 0)))) == ((5, 3), (7, 0))
