"""Which share of their time Workers train, and how many bytes that takes, over emulated lines.

A real Shepherd and real Workers (`pcp shepherd`, `pcp worker`) run in network namespaces of their own. Only the training step
is a stand-in: it sleeps. Messages, transfers, compression, merges and adoptions are what they are in any run. The lines have
a rate, a delay and a loss, and real TCP runs over them. Every byte is counted by the emulator of the lines, outside of PCP:
IP packets with all headers, TLS, heartbeats, acknowledgements, and what was sent again.

Utilisation is steps x seconds of a step, divided by the time in which a Worker did them: whole rounds of H steps, each with all
its merges, after --warm rounds and before the last one.

All processes share the processors of this machine. So each way also runs on loopback, with no line: what is lost there is
lost to the processors, and the rest to the network. `program_processor_seconds_a_round` is the processor time that a Worker's
programs take, in and between steps, and would also take on a machine of its own.
"""

import argparse
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
from pcp.training.data.safetensors_file import write_arrays

ROWS = 1000
MEGABIT = 1e6


def ways(fragments: int, delay: int) -> dict[str, Way]:
    """The contestants, by name."""
    overlap = {"algorithm": "streaming", "fragments": fragments, "delay": delay}
    return {
        "diloco-f32": Way({"algorithm": "diloco", "upload": "f32"}),
        "streaming-int4": Way(overlap | {"upload": "int4", "download": "int4"}, wanted=0.97),
        "streaming-top-k": Way(overlap | {"upload": "top-k", "download": "top-k"}, wanted=0.99),
        "sparse-top-k": Way({"algorithm": "sparse", "upload": "top-k", "download": "top-k"}, wanted=0.99),
        "data-parallel-f32": Way({"algorithm": "data-parallel"}),
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
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    parser.epilog = (
        "examples:\n"
        "  python -m benchmarks utilisation                                       all of it: some ten minutes and 12 GB\n"
        "  python -m benchmarks utilisation --workers 2 --parameters 4e6 --rounds 2   a short form: two minutes"
    )
    parser.add_argument(
        "--ways", nargs="+", choices=known, default=known, help="what to measure (default: all)"
    )
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--parameters", type=float, default=35e6)
    parser.add_argument("--inner-steps", type=int, default=30, help="H")
    parser.add_argument("--step-seconds", type=float, default=0.5, help="of the stand-in for a step")
    parser.add_argument("--fragments", type=int, default=3, help="of Streaming DiLoCo")
    parser.add_argument(
        "--delay", type=int, default=8, help="steps between a push and what comes of it, of Streaming DiLoCo"
    )
    parser.add_argument("--warm", type=int, default=2, help="rounds of H steps before the measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of H steps that are measured")
    parser.add_argument(
        "--parallel-steps", type=int, default=2, help="steps of data parallel training that are measured"
    )
    parser.add_argument("--worker-mbit", type=float, default=100.0, help="rate of a Worker's line, each way")
    parser.add_argument(
        "--shepherd-mbit", type=float, default=1000.0, help="rate of the Shepherd's line, each way"
    )
    parser.add_argument("--round-trip-ms", type=float, default=50.0)
    parser.add_argument("--loss", type=float, default=0.001, help="share of packets that are lost, each way")
    parser.add_argument(
        "--congestion", default="", help="control of TCP, such as bbr (default: the system's)"
    )
    parser.add_argument(
        "--no-loopback", action="store_true", help="do not measure each way without lines, too"
    )
    parser.add_argument(
        "--limit", type=float, default=400.0, help="seconds after which a part of a run has failed"
    )


def _networks(options: argparse.Namespace, way: Way, folder: Path) -> Iterator[Network | None]:
    line = Line(options.worker_mbit * MEGABIT, options.worker_mbit * MEGABIT)
    lines = {SHEPHERD: Line(options.shepherd_mbit * MEGABIT, options.shepherd_mbit * MEGABIT)}
    lines |= {f"worker-{number}": line for number in range(options.workers)}
    with Network(lines, folder, options.round_trip_ms / 1e3, options.loss, options.congestion) as network:
        yield network
    if not options.no_loopback and way.settings["algorithm"] != "data-parallel":
        yield None


def run(options: argparse.Namespace) -> None:
    """Measure each way, over lines and on loopback."""
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
        "| way | utilisation | wanted | on loopback | blocked a round; on loopback | KB up a step | down | fewer up | down |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in over.items():
        beside = alone.get(name)
        wanted = "" if row["wanted"] is None else f"{row['wanted']:.0%}"
        loopback = "" if beside is None else f"{beside['utilisation']:.1%}"
        blocked = f"{row['blocked_seconds_a_round']:.2f} s"
        blocked += "" if beside is None else f"; {beside['blocked_seconds_a_round']:.2f} s"
        moved = [row[f"bytes_{each}_a_step"] for each in ("up", "down")]
        fewer = [""] * 2
        if parallel is not None and row is not parallel:
            fewer = [
                f"{parallel[f'bytes_{each}_a_step'] / row[f'bytes_{each}_a_step']:,.0f} times"
                for each in ("up", "down")
            ]
        kilobytes = [f"{each / 1e3:,.1f}" for each in moved]
        facts = [name, f"{row['utilisation']:.1%}", wanted, loopback, blocked, *kilobytes, *fewer]
        lines.append(f"| {' | '.join(facts)} |")
    return "\n".join(lines)
