"""What one Shepherd costs as its members grow: processor time for each event, memory, event log; and a tree of Shepherds.

The coordinator's and the workers' own logic run under virtual time; the processor time is that of the
coordinator alone, without sockets. Run: `python -m benchmarks scale`.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.distributed.fleets import sums
from benchmarks.distributed.fleets.fleet_worker import FleetWorker, Machine
from benchmarks.distributed.fleets.region import Region
from benchmarks.distributed.fleets.root import Root
from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.messages import DataRange
from pcp.distributed.simulator.clock import VirtualClock

STEPS = 30
PARAMETER_BYTES = 4_000_000
KINDS = (
    "MemberJoined",
    "Ready",
    "Heartbeat",
    "BlobStored",
    "Update",
    "Tick",
    "OuterStepDone",
    "CheckpointDone",
)


def held_bytes(value: Any, seen: set[int]) -> int:
    """Return the bytes of an object and of everything that only it leads to; classes and constants do not count."""
    if id(value) in seen or isinstance(value, type) or value is None:
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        parts: list[Any] = [*value.keys(), *value.values()]
    elif is_dataclass(value):
        parts = [getattr(value, each.name) for each in fields(value)]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    else:
        parts = []
    return size + sum(held_bytes(part, seen) for part in parts)


class Watched(Root):
    """A root that notes how much its coordinator holds when a round is about to be merged, which is when it holds most."""

    peak_bytes = 0

    def merge_later(self, effect: RunOuterStep) -> None:
        """Measure the state, then go on."""
        self.peak_bytes = max(self.peak_bytes, held_bytes(self.coordinator.state, set()))
        super().merge_later(effect)


def run_config(
    name: str, workers: int, rounds: int, steps: int, quorum: float = 1.0, budgets: bool = False
) -> RunConfig:
    """The plan of a simulated run."""
    return RunConfig(
        run_id=name,
        batches=workers * rounds * steps,
        workers=workers,
        round_batches=workers * steps,
        algorithm=DiLoCo(inner_steps=steps),
        patience_seconds=120.0,
        heartbeat_seconds=2.0,
        checkpoint_every=2,
        quorum=quorum,
        step_budgets=budgets,
    )


def machine(random: Random) -> Machine:
    """A machine whose step takes a second, more or less."""
    return Machine(random.uniform(0.9, 1.1), prepare_seconds=random.uniform(1.0, 10.0))


def planned(rounds: int, batches: int) -> bytes:
    """The parameters that a run which loses nothing ends with."""
    return sums.reference(DataRange(each * batches, batches) for each in range(rounds))


def finish(root: Root, expected: bytes | None) -> float:
    """Run until the end, with these parameters; return the seconds it took here."""
    begin = time.perf_counter()
    gc.collect()
    gc.disable()  # the collector would walk the simulated workers, whom no Shepherd holds
    try:
        root.clock.run(1e6, lambda: root.finished)
    finally:
        gc.enable()
    if expected is not None and root.parameters() != expected:
        raise SystemExit("the run lost or doubled a batch: its parameters are not those of the plan")
    return time.perf_counter() - begin


def quantile(values: list[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def star(workers: int, rounds: int, quorum: float, budgets: bool = False) -> dict[str, Any]:
    """Measure a Shepherd with so many workers, that get equal shares or budgets of steps."""
    random, clock = Random(workers), VirtualClock()
    root = Watched(clock, run_config("star", workers, rounds, STEPS, quorum, budgets), PARAMETER_BYTES)
    root.start()
    for index in range(workers):
        worker = FleetWorker(root, f"worker-{index}", machine(random), index, PARAMETER_BYTES)
        clock.after(random.uniform(0.0, 20.0), worker.start)
    here = finish(root, planned(rounds, workers * STEPS) if quorum == 1 else None)
    meter, merged_rounds = root.meter, root.coordinator.state.run.version
    events = sum(len(each) for each in meter.seconds.values())
    busy = sum(sum(each) for each in meter.seconds.values())
    return {
        "workers": workers,
        "rounds": rounds,
        "quorum": quorum,
        "virtual_seconds": clock.now,
        "events": events,
        "events_per_second": events / busy,
        "simulated_actions_per_second": clock.performed / here,
        "messages_per_second": (sum(meter.received.values()) + sum(meter.sent.values())) / clock.now,
        "megabytes_in_per_round": meter.bytes_in / merged_rounds / 1e6,
        "megabytes_out_per_round": meter.bytes_out / merged_rounds / 1e6,
        "state_bytes_per_worker": root.peak_bytes / workers,
        "log_bytes_per_worker_and_round": sum(
            meter.logged[each] for each in ("RoundOpened", "UpdateAdmitted", "RoundClosed", "OuterStepTaken")
        )
        / workers
        / merged_rounds,
        "microseconds": {
            kind: {
                "count": len(meter.seconds[kind]),
                "p50": quantile(meter.seconds[kind], 0.5) * 1e6,
                "p99": quantile(meter.seconds[kind], 0.99) * 1e6,
                "largest": max(meter.seconds[kind]) * 1e6,
                "share": sum(meter.seconds[kind]) / busy,
            }
            for kind in KINDS
        },
    }


def tree(workers: int, regions: int, rounds: int, kill: bool) -> dict[str, Any]:
    """Measure the root above regions; with `kill` one regional Shepherd dies in the middle and comes back later."""
    random, clock = Random(workers), VirtualClock()
    each = workers // regions
    root = Watched(clock, run_config("tree", regions, rounds, each * STEPS), PARAMETER_BYTES)
    root.start()
    below = run_config("below", each, 10**6, STEPS)
    link = Machine(step_seconds=1.0 / each, prepare_seconds=1.0)
    leaders: list[Region] = []
    for region in range(regions):
        team = [
            FleetWorker(root, f"worker-{region}-{index}", machine(random), index, PARAMETER_BYTES)
            for index in range(each)
        ]
        leaders.append(Region(root, f"region-{region}", below, team, link, region, PARAMETER_BYTES))
        leaders[-1].start()
    clock.at(70.0, lambda: fall(clock, leaders[0]) if kill else None)
    finish(root, planned(rounds, each * regions * STEPS))
    meter = root.meter
    return {
        "workers": workers,
        "regions": regions,
        "rounds": rounds,
        "killed": kill,
        "virtual_seconds": clock.now,
        "messages": sum(meter.received.values()) + sum(meter.sent.values()),
        "messages_per_second": (sum(meter.received.values()) + sum(meter.sent.values())) / clock.now,
        "megabytes_in_per_round": meter.bytes_in / rounds / 1e6,
        "megabytes_out_per_round": meter.bytes_out / rounds / 1e6,
        "root_seconds": sum(sum(each) for each in meter.seconds.values()),
        "state_bytes": root.peak_bytes,
    }


def fall(clock: VirtualClock, leader: Region) -> None:
    """Kill a regional Shepherd silently; another process takes its workers over 20 seconds later."""
    leader.stop(silent=True)
    clock.after(20.0, lambda: leader.successor(10**6).start())


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the time of an event over the number of workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    counts = [row["workers"] for row in rows]
    for kind in KINDS:
        axes.plot(counts, [row["microseconds"][kind]["p50"] for row in rows], "o-", label=kind)
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="microseconds of the coordinator (median)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=110)


def show(row: dict[str, Any]) -> None:
    """Print a row for a reader."""
    times = row.get("microseconds", {})
    print("  ".join(f"{key} {value:,.6g}" for key, value in row.items() if not isinstance(value, dict)))
    for kind, entry in times.items():
        print(
            f"    {kind:15s} {entry['count']:8d} events  p50 {entry['p50']:10.1f} us  p99 {entry['p99']:10.1f} us"
            f"  largest {entry['largest']:10.1f} us  {entry['share']:6.1%} of the time"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--workers", type=int, nargs="+", default=[100, 1000, 3000, 10000])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--regions", type=int, nargs="*", default=[10, 30, 100])
    parser.add_argument("--quorum", type=float, default=1.0)
    parser.add_argument("--plot", type=Path, help="write a picture here")


def run(options: argparse.Namespace) -> None:
    """Print one row for each number of workers, then the trees of the largest."""
    output: Callable[[dict[str, Any]], None] = (
        (lambda row: print(json.dumps(row), flush=True)) if options.json else show
    )
    rows = []
    for workers in options.workers:
        rows.append(star(workers, options.rounds, options.quorum))
        output(rows[-1])
    if options.plot:
        draw(rows, options.plot)
    for regions in options.regions:
        for kill in (False, True):
            output(tree(max(options.workers), regions, options.rounds, kill))
