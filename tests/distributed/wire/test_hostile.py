"""Thousands of strangers of many kinds, and a key that means harm: workers are served, and all is given back."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.distributed.fleets import hostile, strangers


@pytest.mark.timeout(600)
@pytest.mark.parametrize("connections", [2000, pytest.param(10_000, marks=pytest.mark.long)])
def test_workers_are_served_beside_a_crowd_of_strangers(tmp_path: Path, connections: int) -> None:
    outcome = asyncio.run(hostile.measure(tmp_path, connections))
    served = outcome.served
    kinds = [attack.__name__ for attack in strangers.WITHOUT_A_KEY]
    assert sum(outcome.made[kind] for kind in kinds) > 0.9 * connections
    assert min(outcome.made[kind] for kind in kinds) > 0
    assert {"preamble", "TlsFailure"} <= set(outcome.refused)

    assert served.failures == []
    assert served.reconnects == 0
    for work in (served.beats, served.fetches, served.joins):
        assert len(work) > 3

    assert outcome.after.is_back_at(outcome.before), outcome
