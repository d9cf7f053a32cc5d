"""Random lives of a coordinator: the books balance after every event, what is merged is what was pushed, and the run ends."""

from dataclasses import replace

import pytest

from pcp.distributed.coordinator import RunConfig, TimeoutPolicy
from tests.distributed.coordinator.chaos import Chaos
from tests.distributed.coordinator.desk import CONFIG, Fragmented

GRACE = TimeoutPolicy(initial_seconds=2.0, slack=1.2, floor_seconds=0.5, cap_seconds=5.0)


def config(fragments: int, delay: int, quorum: float, late: str, budgets: bool = False) -> RunConfig:
    algorithm = Fragmented(3 * fragments, fragments, delay, late)
    return replace(
        CONFIG,
        workers=3,
        rounds=3,
        algorithm=algorithm,
        update_bytes=(40,) * fragments,
        quorum=quorum,
        grace=GRACE,
        patience_seconds=3.0,
        step_budgets=budgets,
        lease=TimeoutPolicy(initial_seconds=100.0, floor_seconds=5.0, cap_seconds=300.0),
        checkpoint_every=4,
    )


@pytest.mark.parametrize("fragments", [1, 2, 3, 4])
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize(("quorum", "late"), [(1.0, "again"), (1.0, "carry"), (0.5, "again"), (0.5, "carry")])
def test_nothing_is_lost_whatever_happens(fragments: int, delay: int, quorum: float, late: str) -> None:
    restarts = 0
    for seed in range(4):
        chaos = Chaos(config(fragments, delay, quorum, late, budgets=seed % 2 == 1), seed)
        for _ in range(250):
            if not chaos.desk.state.finished:
                chaos.act()
        chaos.calm()
        assert chaos.desk.state.run.complete
        restarts += chaos.restarts
