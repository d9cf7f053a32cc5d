"""Schedules of workers that exchange in pairs, and of workers that fetch from each other."""

import collections
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.coordinator.rounds import resumption, sharing
from pcp.distributed.coordinator.rounds.cells import Pending
from pcp.distributed.gossip import offer_box
from pcp.distributed.peers.fetching import HolderFetcher
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.simulator import Simulation, SimulationFailed, scenario_of, shepherd_process, simulate
from pcp.distributed.simulator.scenario import IN_PAIRS, LISTENING
from pcp.distributed.wire.bulk.permissions import NotAnnounced

Patch = pytest.MonkeyPatch
PAIRS = range(IN_PAIRS // 2, 9 * IN_PAIRS, IN_PAIRS)


def test_every_batch_counts_once_and_offers_are_those_of_the_partner() -> None:
    met: Counter[str] = Counter()
    for seed in PAIRS:
        assert isinstance(scenario_of(seed).config.algorithm, NoLoCo)
        simulation = Simulation(
            scenario_of(seed), lambda _time, _who, what: met.update([type(what).__name__])
        )
        outcome = simulation.run()
        met.update(exchanged=simulation.witness.exchanged, alone=simulation.witness.alone)
        met.update(restarts=outcome.epochs - 1)
    assert met["exchanged"] > 50
    assert met["alone"] > 20
    assert met["restarts"] > 3
    assert met["Shorten"], "leases are shared"
    assert met["Fault"] > 20


@pytest.mark.parametrize("seed", [168, 17896])
def test_what_a_worker_pushed_in_its_middle_is_replaced_and_kept_until_the_log_says_so(seed: int) -> None:
    """After a Shepherd's death both were merged; after a cut of its power what was replaced was deleted and still needed."""
    simulate(scenario_of(seed))


def test_a_seed_replays_line_by_line() -> None:
    def traced() -> list[str]:
        lines: list[str] = []
        simulate(scenario_of(PAIRS[1]), lambda time, who, what: lines.append(f"{time} {who} {what}"))
        return lines

    assert traced() == traced()


def test_workers_that_listen_fetch_from_each_other(monkeypatch: Patch) -> None:
    found: Counter[bool] = Counter()
    fetched = HolderFetcher._fetched_from

    async def counted(own: HolderFetcher, *arguments: Any) -> bool:
        came = await fetched(own, *arguments)
        found[came] += 1
        return came

    monkeypatch.setattr(HolderFetcher, "_fetched_from", counted)
    for seed in range(2, 160, LISTENING):
        assert scenario_of(seed).listens
        simulate(scenario_of(seed))
    assert found[True] > 4
    assert found[False] > 4, "holders refuse what they lack, die, and are cut off"


def rests_forgotten(patch: Patch) -> None:
    shorten = sharing.shorten

    def forgetful(*arguments: Any) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Pending, "put", lambda _pending, _cells: None)
            return shorten(*arguments)

    patch.setattr(sharing, "shorten", forgetful)


def ends_not_heard(patch: Patch) -> None:
    patch.setattr(sharing, "shorten", lambda _turn, _held, _batches: False)


def anything_resumed(patch: Patch) -> None:
    patch.setattr(resumption, "_unacceptable", lambda *_: "")


def numbers_of_offers_misread(patch: Patch) -> None:
    patch.setattr(offer_box, "number_of", lambda _store, _blob: 7)


def earlier_weights_merged_too(patch: Patch) -> None:
    patch.setattr(sharing, "earlier", lambda _turn, _held: [])


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (rests_forgotten, 3),
        (ends_not_heard, 3),
        (anything_resumed, 15),
        (numbers_of_offers_misread, 3),
        (earlier_weights_merged_too, 15),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], seeds: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(shepherd_process, "check_books", lambda _state: None)
    plant(monkeypatch)
    scenarios = map(scenario_of, range(IN_PAIRS // 2, seeds * IN_PAIRS, IN_PAIRS))
    with pytest.raises(SimulationFailed):
        collections.deque(map(simulate, scenarios), maxlen=0)


def test_a_stranger_is_given_nothing() -> None:
    """Holdings ask the book, which knows the members only."""
    simulation = Simulation(scenario_of(PAIRS[0]))
    simulation.run()
    neighbour = simulation.workers[0].neighbour
    assert neighbour is not None
    holdings: Holdings = neighbour._holdings
    for held in list(holdings._held)[:1]:
        with pytest.raises(NotAnnounced, match="stranger is no member of the run"):
            holdings.check_fetch("stranger", held)
