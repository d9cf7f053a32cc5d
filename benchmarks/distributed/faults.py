"""A run with real processes meets faults at random moments: how soon it goes on, what it trains again, and how it ends.

One Shepherd and some Workers (`pcp shepherd`, `pcp worker`) run on machines of their own: a network namespace with an emulated
line, a small disk in memory, a wall clock. They train a small network with DiLoCo. A step is padded to --step-seconds, so that
the processors of this machine serve all of them. At random moments, one after the other, a party is killed (`kill -9`; it
is started again after half a second), stopped (SIGSTOP) for a moment or for longer than members are waited for, cut off
(both ways, or one way), has its wall clock put forward or back, or its disk filled.

Of each fault it is asserted that
- work goes on within --seconds, and the time to fetch the parameters, of the moment when its cause is over. Of a process
  that was killed that is when its successor has started: a Shepherd listens, a Worker has its programs verified and compiled.
  `starting` tells how long that takes, from the kill on; the others train meanwhile, if it was a Worker;
- at most a round's batches are trained again.
In the end the run is computed again from its event log, in one process: each push and each outer step must be the same bit for
bit.

Work goes on when the Shepherd grants a lease, takes an update, or merges a round; after a Worker's fault, a lease or an update
of that Worker. Part of a round may have to pass before: the rows of clocks that jump say how much that is.
The command ends with 1 if anything does not hold.
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.distributed.machines.isolation import isolate
from benchmarks.distributed.outages.faults import KINDS, Fault, drawn
from benchmarks.distributed.outages.fleet import BATCH, SHEPHERD, Fleet, network_of
from benchmarks.distributed.outages.replay import Different, read_log, replay
from benchmarks.options import add_option

LIMIT_SECONDS = 90.0
MOST_WAIT_SECONDS = 2.0
PARTIES = [SHEPHERD, "worker"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fault led to.

    Arguments:
        kind, party: the fault.
        seconds: how long its cause lasted.
        starting: seconds until a new process had started; 0 where none was needed.
        goes_on: seconds from then, or from when the cause was over, until work went on.
        again: batches trained more than once.
        rounds: what these are of a round.
        fails: what does not hold.
    """

    kind: str
    party: str
    seconds: float
    starting: float
    goes_on: float
    again: int
    rounds: float
    fails: tuple[str, ...]


class Trial:
    """Faults of a fleet, one after the other.

    Arguments:
        fleet: that trains.
        options: of the command.
    """

    def __init__(self, fleet: Fleet, options: argparse.Namespace) -> None:
        self._fleet, self._options = fleet, options
        self._round = options.workers * options.inner_steps

    def meet(self, fault: Fault, random: Random) -> Outcome:
        """Let a fault happen, and wait until work goes on and a round is merged."""
        fleet, kind, name = self._fleet, fault.kind, fault.party
        self._pass(fault.wait_seconds)
        before = len(fleet.rounds)
        machine, ready = fleet.machines[name], len(fleet.machines[name].ready)
        began = time.monotonic()
        kind.begin(fleet, name, random)
        self._pass(fault.seconds)
        kind.end(fleet, name)
        over = time.monotonic()
        if kind.starts:
            fleet.wait(lambda: len(machine.ready) > ready, LIMIT_SECONDS, f"{name} is back after {kind.name}")
            over = machine.ready[ready]
        seen = fleet.work_of(name)
        fleet.wait(
            lambda: bool(seen) and seen[-1] > over, LIMIT_SECONDS, f"{name} works again after {kind.name}"
        )
        goes_on = next(each for each in seen if each > over) - over
        merged = len(fleet.rounds)
        fleet.wait(lambda: len(fleet.rounds) > merged, LIMIT_SECONDS, f"a round is merged after {kind.name}")
        again = self._trained_again(before - 1)
        fails = []
        if goes_on > self._options.seconds + self._fetching():
            fails.append(f"work goes on after {goes_on:.1f} s")
        if again > self._round + len(
            fleet.workers
        ):  # a step of each may be under way when a round is told of
            fails.append(f"{again} batches are trained again, a round has {self._round}")
        starting = over - began if kind.starts else 0.0
        party = name if name == SHEPHERD else "worker"
        return Outcome(
            kind.name, party, fault.seconds, starting, goes_on, again, again / self._round, tuple(fails)
        )

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self._fleet.wait(lambda: time.monotonic() >= end, seconds + LIMIT_SECONDS, "time passes")

    def _fetching(self) -> float:
        """Seconds to fetch the parameters: four round trips, and their bytes on the line."""
        return 4e-3 * self._options.round_trip_ms + 8 * self._fleet.parameter_bytes / (
            1e6 * self._options.worker_mbit
        )

    def _trained_again(self, first: int) -> int:
        """Steps since the end of a round that are not behind what was merged until the end of the last."""
        (begin, earlier), (end, later) = self._fleet.rounds[first], self._fleet.rounds[-1]
        steps = sum(
            begin < each <= end for machine in self._fleet.machines.values() for each in machine.steps
        )
        return max(0, steps - (later["tokens"] - earlier["tokens"]) // BATCH)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    parser.epilog = (
        "examples:\n"
        "  python -m benchmarks faults                       a hundred faults: a quarter of an hour\n"
        "  python -m benchmarks faults --number 16 --seed 3  each kind of each party once: three minutes\n"
        "  python -m benchmarks --json faults                a JSON object for each fault, and one for the replay"
    )

    option = functools.partial(add_option, parser)
    names = [kind.name for kind in KINDS]
    option("--number", 100, "of faults")
    option("--seed", 0, "of all that is random")
    parser.add_argument(
        "--kinds", nargs="+", choices=names, default=names, metavar="KIND", help=f"of {', '.join(names)}"
    )
    parser.add_argument(
        "--parties", nargs="+", choices=PARTIES, default=PARTIES, metavar="PARTY", help="shepherd, worker"
    )
    option("--workers", 3, "beside the Shepherd")
    option("--seconds", 5.0, "within which work must go on")
    option("--inner-steps", 50, "H: a round has so many batches of each Worker")
    option("--step-seconds", 0.02, "that a step takes at least")
    option("--worker-mbit", 100.0, "rate of a Worker's line; the Shepherd's is ten times as high")
    option("--round-trip-ms", 50.0, "between a Worker and the Shepherd")
    option("--loss", 0.001, "share of packets that are lost, each way")


def run(options: argparse.Namespace) -> None:
    """Let the faults happen, and compute the run again."""
    isolate()
    random = Random(options.seed)
    workers = [f"worker-{number}" for number in range(options.workers)]
    kinds = [kind for kind in KINDS if kind.name in options.kinds]
    faults = drawn(options.number, kinds, options.parties, workers, MOST_WAIT_SECONDS, random)
    settings = {
        "workers": options.workers,
        "algorithm": "diloco",
        "inner_steps": options.inner_steps,
        "steps": 100_000 * options.inner_steps,
        "learning_rate": 1e-3,
        "beta1": 0.0,
        "beta2": 0.0,
        "merge": "mean",
        "evaluate_every": 0,
        "checkpoint_every": 0,
    }
    outcomes = []
    with (
        tempfile.TemporaryDirectory() as folder,
        network_of(options, Path(folder)) as network,
        Fleet(Path(folder), network, workers, settings, options.step_seconds) as fleet,
    ):
        fleet.start(LIMIT_SECONDS)
        trial, began = Trial(fleet, options), time.monotonic()
        for number, fault in enumerate(faults):
            outcomes.append(trial.meet(fault, random))
            _tell(number, outcomes[-1], options.json)
        lasted = time.monotonic() - began
        fleet.end()
        failed = [each for each in outcomes if each.fails]
        end = _replayed(fleet) | {"seconds": lasted, "failed": len(failed), "ended": fleet.ended}
    if options.json:
        print(json.dumps(end))
    else:
        print(table(outcomes))
        print(
            f"\n{len(outcomes)} faults in {lasted:.0f} s; the replay: {end['replay']}; {len(failed)} faults failed"
        )
    if failed or not end["same"]:
        raise SystemExit(1)


def _replayed(fleet: Fleet) -> dict[str, Any]:
    try:
        found = replay(fleet.run, read_log(fleet.run))
    except Different as error:
        return {"same": False, "replay": f"DIFFERENT: {error}"}
    said = (
        f"{found.rounds} rounds, {found.pushes} pushes, {found.batches} batches, each merged once, are the same bit for bit; "
        f"loss {found.first_loss:.4f} at first, {found.last_loss:.4f} at last"
    )
    return {"same": True, "replay": said}


def _tell(number: int, outcome: Outcome, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"number": number} | asdict(outcome)), flush=True)
        return
    starting = f"started after {outcome.starting:.1f} s, " if outcome.starting else ""
    print(
        f"{number + 1:4d}  {outcome.party:8s}  {outcome.kind:20s}  {outcome.seconds:5.1f} s; {starting}"
        f"goes on after {outcome.goes_on:.2f} s; {outcome.rounds:.2f} rounds again  {'; '.join(outcome.fails)}",
        flush=True,
    )


def table(outcomes: list[Outcome]) -> str:
    """A row for each kind of each party."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for each in outcomes:
        groups[each.party, each.kind].append(each)
    lines = [
        "",
        "| party | fault | number | starting: median, largest | goes on after: median, largest | rounds again | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for (party, kind), group in sorted(groups.items()):
        starting, goes_on = [each.starting for each in group], [each.goes_on for each in group]
        begun = f"{statistics.median(starting):.1f} s, {max(starting):.1f} s" if any(starting) else ""
        lines.append(
            f"| {party} | {kind} | {len(group)} | {begun} | {statistics.median(goes_on):.2f} s, {max(goes_on):.2f} s | "
            f"{max(each.rounds for each in group):.2f} | {sum(bool(each.fails) for each in group)} |"
        )
    return "\n".join(lines)
