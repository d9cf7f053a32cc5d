"""Faults at random moments: how they are drawn, and what their table says."""

from collections import Counter
from random import Random

from benchmarks.distributed.outages.faults import KINDS, drawn

from benchmarks.distributed import faults


def test_every_kind_meets_every_party_about_as_often() -> None:
    workers = ["alice", "bob"]
    found = drawn(40, KINDS, faults.PARTIES, workers, 2.0, Random(4))
    counts = Counter((each.kind.name, each.party == "shepherd") for each in found)
    assert len(counts) == 2 * len(KINDS)
    assert {2, 3} == set(counts.values())
    assert {each.party for each in found} == {"shepherd", *workers}
    assert all(each.kind.seconds[0] <= each.seconds <= each.kind.seconds[1] for each in found)
    assert found == drawn(40, KINDS, faults.PARTIES, workers, 2.0, Random(4))
    assert found != drawn(40, KINDS, faults.PARTIES, workers, 2.0, Random(5))


def test_the_table_has_a_row_for_each_kind_of_each_party() -> None:
    told = [
        faults.Outcome("kill -9", "worker", 0.0, starting, goes_on, 30, 0.2, fails)
        for starting, goes_on, fails in [
            (3.0, 1.0, ()),
            (4.0, 9.0, ("work goes on after 9.0 s",)),
            (5.0, 2.0, ()),
        ]
    ]
    told.append(faults.Outcome("disk full", "shepherd", 3.0, 0.0, 0.5, 0, 0.0, ()))
    rows = faults.table(told).splitlines()[3:]
    assert rows == [
        "| shepherd | disk full | 1 |  | 0.50 s, 0.50 s | 0.00 | 0 |",
        "| worker | kill -9 | 3 | 4.0 s, 5.0 s | 2.00 s, 9.00 s | 0.20 | 1 |",
    ]
