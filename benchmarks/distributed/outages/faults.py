"""The kinds of faults: what begins one, what ends it, and how long it lasts."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.distributed.outages.fleet import SHEPHERD, Fleet

CLOCK_BACK_SECONDS, CLOCK_FORWARD_SECONDS = 500.0, 30 * 86400.0
"""Keys are valid from ten minutes before they were made on; a clock further back takes them for keys of the future."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Arguments:
        name: in tables.
        seconds: how long it lasts, from and to; nothing: it is over at once.
        begin, end: do it to a machine of a fleet.
        starts: whether a new process begins with it.
    """

    name: str
    seconds: tuple[float, float]
    begin: Callable[[Fleet, str, Random], None]
    end: Callable[[Fleet, str], None]
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a machine.

    Arguments:
        kind: what happens.
        party: to which machine.
        seconds: how long it lasts.
        wait_seconds: from the recovery of the last fault.
    """

    kind: Kind
    party: str
    seconds: float
    wait_seconds: float


def _nothing(_: Fleet, __: str) -> None:
    pass


def _signal(fleet: Fleet, name: str, number: signal.Signals) -> None:
    process = fleet.machines[name].process
    assert process is not None
    process.send(number)


def _cut(*directions: str) -> tuple[Callable[[Fleet, str, Random], None], Callable[[Fleet, str], None]]:
    def begin(fleet: Fleet, name: str, _: Random) -> None:
        for direction in directions:
            fleet.network.cut(name, direction, True)

    def end(fleet: Fleet, name: str) -> None:
        for direction in directions:
            fleet.network.cut(name, direction, False)

    return begin, end


def _shift(fleet: Fleet, name: str, random: Random) -> None:
    fleet.machines[name].shift_clock(_jump(random))


def _jump(random: Random) -> float:
    """Back by minutes, or forward by seconds to a month, all about as likely."""
    if random.random() < 0.5:
        return -random.uniform(1.0, CLOCK_BACK_SECONDS)
    return float(CLOCK_FORWARD_SECONDS ** random.random())


def _stop(fleet: Fleet, name: str, _: Random) -> None:
    _signal(fleet, name, signal.SIGSTOP)


def _resume(fleet: Fleet, name: str) -> None:
    _signal(fleet, name, signal.SIGCONT)


KINDS = (
    Kind("kill -9", (0, 0), lambda fleet, name, _: fleet.kill(name), _nothing, starts=True),
    Kind("stopped for a moment", (0.3, 3.0), _stop, _resume),
    Kind("stopped for long", (11.0, 13.0), _stop, _resume),
    Kind("black hole", (2.0, 6.0), *_cut("up", "down")),
    Kind("all it sends is lost", (2.0, 6.0), *_cut("up")),
    Kind("all it gets is lost", (2.0, 6.0), *_cut("down")),
    Kind("clock jumps", (0, 0), _shift, _nothing),
    Kind(
        "disk full",
        (2.0, 6.0),
        lambda fleet, name, _: fleet.machines[name].fill_disk(),
        lambda fleet, name: fleet.machines[name].free_disk(),
    ),
)


def drawn(
    number: int,
    kinds: Sequence[Kind],
    parties: Sequence[str],
    workers: list[str],
    most_wait: float,
    random: Random,
) -> list[Fault]:
    """Faults at random moments: every kind of either party about as often, in random order.

    Arguments:
        number: of them.
        kinds: of which they are.
        parties: `shepherd`, `worker` or both.
        workers: names, of which one is drawn for each fault of a Worker.
        most_wait: seconds at most from the recovery of one to the next.
        random: draws.
    """
    pairs = [(kind, party) for kind in kinds for party in parties]
    deck = [pair for _ in range(-(-number // len(pairs))) for pair in random.sample(pairs, len(pairs))][
        :number
    ]
    return [
        Fault(
            kind,
            SHEPHERD if party == SHEPHERD else random.choice(workers),
            random.uniform(*kind.seconds),
            random.uniform(0, most_wait),
        )
        for kind, party in deck
    ]
