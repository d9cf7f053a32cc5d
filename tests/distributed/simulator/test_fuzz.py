"""Lives of the state machines among peers that say anything; `python -m pcp.distributed.simulator.fuzz` goes on for hours."""

import subprocess
import time
from pathlib import Path

import pytest

from pcp.distributed.coordinator.rounds import leases
from pcp.distributed.coordinator.timing import Pace
from pcp.distributed.gossip import exchanger
from pcp.distributed.simulator.fuzz import gossip
from pcp.distributed.simulator.fuzz.__main__ import LIVES, live

FIXED = 4
SECONDS = 5.0
"""For the seeds of a commit, of each kind."""


def seed_of_the_commit() -> int:
    """Other seeds for each commit; 10^6 where there is none."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=6", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return 10**6 + (int(found, 16) if found else 0)


@pytest.mark.parametrize("kind", sorted(LIVES))
def test_nothing_that_is_said_breaks_it(kind: str) -> None:
    first = seed_of_the_commit()
    print(f"seeds 0 to {FIXED - 1}, and from {first} on")
    broken = [(seed, failure) for seed in range(FIXED) if (failure := live(kind, seed)[1])]
    end, seed = time.monotonic() + SECONDS, first
    while not broken and time.monotonic() < end:
        if failure := live(kind, seed)[1]:
            broken.append((seed, failure))
        seed += 1
    assert not broken, (
        f"python -m pcp.distributed.simulator.fuzz --kind {kind} --first {broken[0][0]} --seconds 1"
    )


def found(kind: str, seeds: int = 40) -> str:
    """What the first life says that breaks."""
    return next((failure for seed in range(seeds) if (failure := live(kind, seed)[1])), "")


def test_a_lease_that_is_forgotten_in_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "release_blobs", lambda _turn, _named: None)
    assert "named by leases" in found("shepherd")


def test_a_pace_without_bounds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "told", lambda pace, _: setattr(pace, "told_seconds", 5e-324))
    assert "Error" in found("shepherd")


def test_numbers_of_exchanges_that_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exchanger, gossip):
        monkeypatch.setattr(module, "number_after", lambda number: number + 1)
    assert "does not meet" in found("gossip") or "follows" in found("gossip")
