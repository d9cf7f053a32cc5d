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
        batches=9 * algorithm.inner_steps,
        algorithm=algorithm,
        update_bytes=(40,) * fragments,
        quorum=quorum,
        grace=GRACE,
        patience_seconds=3.0,
        step_budgets=budgets,
        lease=TimeoutPolicy(initial_seconds=100.0, floor_seconds=5.0, cap_seconds=300.0),
        checkpoint_every=4,
    )


PLANS = [
    (fragments, delay, quorum, late)
    for fragments in (1, 2, 3, 4)
    for delay in (0, 1)
    for quorum, late in ((1.0, "again"), (1.0, "carry"), (0.5, "again"), (0.5, "carry"))
]


def live(plan: tuple[int, int, float, str], seed: int, length: int) -> Chaos:
    """Let a run have so many random events, and then end."""
    chaos = Chaos(config(*plan, budgets=seed % 2 == 1), seed)
    for _ in range(length):
        if not chaos.desk.state.finished:
            chaos.act()
    chaos.calm()
    return chaos


@pytest.mark.share(4, each="plan")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_nothing_is_lost_whatever_happens(plan: tuple[int, int, float, str], seed: int) -> None:
    assert live(plan, seed, length=150).desk.state.run.complete


def test_the_lives_are_as_eventful_as_they_should_be() -> None:
    seen: set[str] = set()
    for seed in (11, 26):
        seen |= live((3, 1, 0.5, "carry"), seed, length=250).seen
    assert seen >= {
        "restart",
        "admitted",
        "carried",
        "refused",
        "a push alone",
        "some fragments",
        "a later adoption",
        "merged while waiting",
    }


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_nothing_is_lost_in_many_lives(plan: tuple[int, int, float, str]) -> None:
    for seed in range(100, 140):
        assert live(plan, seed, length=400).desk.state.run.complete, f"seed {seed}"
