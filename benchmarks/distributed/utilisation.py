"""Which share of their time Workers train, and how many bytes that takes, over emulated lines.

A real Shepherd and real Workers (`pcp shepherd`, `pcp worker`) run in network namespaces of their own. Only the training step
is a stand-in: it sleeps. Messages, transfers, compression, merges and adoptions are what they are in any run. The lines have
a rate, a delay and a loss, and real TCP runs over them. Every byte is counted by the emulator of the lines, outside of PCP:
IP packets with all headers, TLS, heartbeats, acknowledgements, and what was sent again.

Utilisation is steps x seconds of a step, divided by the time in which a Worker did them: whole rounds of H steps, each with all
its merges, after --warm rounds and before the last one.

All processes share the processors of this machine. So the ways that overlap also run on loopback, with no line: what is lost
there is lost to the processors, and the rest to the network. Of the time in which a Worker is blocked, `waited_seconds_a_round`
are waited for merged fragments (the push, the Shepherd's `outer_step_seconds`, the fetch), `outside_seconds_a_round` go to its
programs before and after the steps of a lease, and the rest to adopting in the middle of a lease and to the round trip between
two leases. `program_processor_seconds_a_round` is the processor time of its programs. They would take it on a machine of its
own, too; --workers 1 measures a Worker that shares this one with the Shepherd only.
"""

import argparse
import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pcp
from benchmarks.distributed.machines.isolation import isolate
from benchmarks.distributed.machines.network import Line, Network
from benchmarks.distributed.machines.stand_in_run import SHEPHERD, Run, Way
from benchmarks.options import add_option
from pcp.training.data.safetensors_file import write_arrays

ROWS = 1000
MEGABIT = 1e6


def ways(fragments: int, delay: int) -> dict[str, Way]:
    """The contestants, by name. With a single fragment, a round could only open when the pushes of the last have arrived."""
    overlap = {"algorithm": "streaming", "delay": delay, "fragments": fragments}
    four_bits, largest = ({"upload": each, "download": each} for each in ("int4", "top-k"))
    return {
        "diloco-f32": Way({"algorithm": "diloco", "upload": "f32"}, rounds=1),
        "streaming-int4": Way(overlap | four_bits, 0.97, on_loopback=True),
        "streaming-top-k": Way(overlap | largest, 0.99, on_loopback=True),
        "sparse-top-k": Way({"algorithm": "sparse"} | largest, 0.99, on_loopback=True),
        "data-parallel-f32": Way({"algorithm": "data-parallel"}, rounds=2),
    }


def write_model(folder: Path, parameters: int) -> None:
    """Files of a loss with so many parameters, in equal arrays."""
    count = max(1, round(parameters / ROWS**2))
    rng = np.random.default_rng(0)
    weights = {f"w{number}": 0.02 * rng.standard_normal((ROWS, ROWS), np.float32) for number in range(count)}

    def loss(weights: Any, x: Any) -> Any:
        return sum(((x @ each) ** 2).mean() for each in weights.values()) / count

    pcp.trace(loss, weights, pcp.spec((1, ROWS), "f32")).save(folder / "loss.pcp")
    with (folder / "weights.safetensors").open("wb") as file:
        write_arrays(file, weights)
    np.savez(folder / "samples.npz", x=rng.standard_normal((64, ROWS), np.float32))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    known = list(ways(1, 0))
    usual = [name for name in known if name != "sparse-top-k"]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    parser.epilog = (
        "examples:\n"
        "  python -m benchmarks utilisation                                           ten to fifteen minutes, 15 GB\n"
        "  python -m benchmarks utilisation --workers 2 --parameters 4e6 --rounds 2   a short form\n"
        "  python -m benchmarks utilisation --workers 1 --ways streaming-int4         without seven others on these cores\n"
        "  python -m benchmarks --json utilisation --ways streaming-int4 sparse-top-k --congestion reno"
    )

    option = functools.partial(add_option, parser)
    names = ", ".join(known)
    parser.add_argument(
        "--ways",
        nargs="+",
        choices=known,
        default=usual,
        metavar="WAY",
        help=f"of {names} (default: all but sparse-top-k, which waits while it exchanges)",
    )
    option("--workers", 8, "each on a machine of its own")
    option("--parameters", 35e6, "of the model")
    option("--inner-steps", 30, "H: steps between two merges of a fragment")
    option("--step-seconds", 0.5, "of the stand-in for a step")
    option("--fragments", 2, "of streaming")
    option("--delay", 12, "steps between a push and what comes of it, of Streaming DiLoCo")
    option("--warm", 1, "rounds before the measurement")
    option("--rounds", 3, "rounds that are measured, fewer of the slow ways")
    option("--worker-mbit", 100.0, "rate of a Worker's line, each way")
    option("--shepherd-mbit", 1000.0, "rate of the Shepherd's line, each way")
    option("--round-trip-ms", 50.0, "between a Worker and the Shepherd")
    option("--loss", 0.001, "share of packets that are lost, each way")
    parser.add_argument(
        "--congestion", default="", help="control of TCP, such as bbr (default: the system's)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--no-loopback", action="store_true", help="measure no way without lines, too")
    where.add_argument(
        "--no-lines", action="store_true", help="measure on loopback only, which needs no namespaces"
    )
    option("--limit", 400.0, "seconds after which a part of a run has failed")


def _networks(options: argparse.Namespace, way: Way, folder: Path) -> Iterator[Network | None]:
    if options.no_lines:
        yield None
        return
    line = Line(options.worker_mbit * MEGABIT, options.worker_mbit * MEGABIT)
    lines = {SHEPHERD: Line(options.shepherd_mbit * MEGABIT, options.shepherd_mbit * MEGABIT)}
    lines |= {f"worker-{number}": line for number in range(options.workers)}
    with Network(lines, folder, options.round_trip_ms / 1e3, options.loss, options.congestion) as network:
        yield network
    if way.on_loopback and not options.no_loopback:
        yield None


def run(options: argparse.Namespace) -> None:
    """Measure each way, over lines and on loopback."""
    if not options.no_lines:
        isolate()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder, int(options.parameters))
        for name, way in ways(options.fragments, options.delay).items():
            if name not in options.ways:
                continue
            for network in _networks(options, way, folder):
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    row = Run(options, name, way, Path(own), folder, network).measure()
                rows.append(row)
                print(json.dumps(row) if options.json else _line(row), flush=True)
    if not options.json:
        print(table(rows))


def _line(row: dict[str, Any]) -> str:
    facts = (
        f"{row['way']:18s} {'lines' if row['lines'] else 'loopback':8s} utilisation {row['utilisation']:.2%}"
    )
    facts += f" (worst {row['worst']:.2%}); a round takes {row['seconds_a_round']:.2f} s; "
    facts += f"cores: Workers {row['cores_of_workers']:.2f}, Shepherd {row['cores_of_shepherd']:.2f}"
    if row["lines"]:
        facts += f", lines {row['cores_of_lines']:.2f}; {row['congestion']}; "
        facts += f"packets lost {row['lost']:.2%}, dropped {row['dropped']:.2%}"
    return f"{facts}; {row['memory_gb']:.1f} GB"


def table(rows: list[dict[str, Any]]) -> str:
    """A row for each way: utilisation over lines and on loopback, and bytes beside those of data parallel training."""
    over = {row["way"]: row for row in rows if row["lines"]}
    alone = {row["way"]: row for row in rows if not row["lines"]}
    parallel = over.get("data-parallel-f32")
    lines = [
        "",
        "| way | utilisation | wanted | blocked a round (for merges) | on loopback | KB up a step | down | fewer up | down |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in over.items():
        beside = alone.get(name)
        wanted = "" if row["wanted"] is None else f"{row['wanted']:.0%}"
        loopback = "" if beside is None else f"{beside['utilisation']:.1%}, {_blocked(beside)}"
        moved = [row[f"bytes_{each}_a_step"] for each in ("up", "down")]
        fewer = [""] * 2
        if parallel is not None and row is not parallel:
            theirs = [parallel[f"bytes_{each}_a_step"] for each in ("up", "down")]
            fewer = [f"{other / own:,.0f} times" for other, own in zip(theirs, moved, strict=True)]
        kilobytes = [f"{each / 1e3:,.1f}" for each in moved]
        facts = [name, f"{row['utilisation']:.1%}", wanted, _blocked(row), loopback, *kilobytes, *fewer]
        lines.append(f"| {' | '.join(facts)} |")
    return "\n".join(lines)


def _blocked(row: dict[str, Any]) -> str:
    return f"{row['blocked_seconds_a_round']:.2f} s ({row['waited_seconds_a_round']:.2f} s)"
