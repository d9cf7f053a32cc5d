"""Single kernels on a GPU, forward and backward, beside PyTorch's and JAX's: attention, norms, cross entropy, AdamW.

    python -m benchmarks gpu-kernels --out kernels.jsonl
    python -m benchmarks gpu-kernels --only attention
    python -m benchmarks gpu-kernels --dry

PCP's kernels stand in a program whose operands and results are in bfloat16, as in a step. Attention is causal, of 16 heads of
width 128 and 16k tokens in all, as in FlashAttention's tables; TFLOP/s count half of the scores. With a cap it has 8 heads of
width 256, too; padded, it is not causal, and work is counted within the lengths. Contestants have a process
each, and take turns. The time is the median of turns of many calls that do not wait for one another. The error is the largest
of a result, relative to its norm, beside the same operation in float32 as it is written.
"""

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu import kernels_jax, kernels_pcp
from benchmarks.gpu.card import is_here
from benchmarks.gpu.kernel_cases import Array, Case, cases, error_of
from benchmarks.own_process import OwnProcess

OPERATIONS = (
    "attention",
    "attention_capped",
    "attention_padded",
    "layer_norm",
    "rms_norm",
    "cross_entropy",
    "adamw",
)
PCP = "PCP, fastest kernels"
TURNS = 5
TURN_SECONDS = 0.2
Row = dict[str, Any]


def _peers() -> dict[str, Any]:
    """The modules of the peers that are installed."""
    if not find_spec("torch"):
        print("gpu-kernels: PyTorch is left out, torch is not installed", file=sys.stderr)
        return {"JAX": kernels_jax}
    from benchmarks.gpu import kernels_torch

    return {"PyTorch": kernels_torch, "JAX": kernels_jax}


class Contestants:
    """The processes, each started when it is first asked; a context manager.

    Arguments:
        device: that they run on.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.peers = _peers()
        self._stack = ExitStack()
        self._started: dict[str, OwnProcess] = {}

    def __enter__(self) -> "Contestants":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def right(self, case: Case) -> dict[int, Array] | None:
        """The results of a case as it is written, in float32; None where that does not fit."""
        return self._results("as written", kernels_pcp.contestant, case, True) if case.is_judged else None

    def found(self, case: Case) -> dict[str, dict[int, Array]]:
        """The results of each way to compute a case that ends without an error, and is then ready to be timed."""
        results = {PCP: self._results(PCP, kernels_pcp.contestant, case, False)}
        for peer, module in self.peers.items():
            for how in module.variants(case, self.device):
                name = f"{peer}, {how}"
                results[name] = self._results(name, module.contestant, (case, how))
        found = {name: each for name, each in results.items() if each is not None}
        for name in results.keys() - found.keys():
            print(f"{case.name}: {name} is left out, its process ended with the error above", file=sys.stderr)
        return found

    def timed(self, names: list[str], turns: int, turn_seconds: float) -> dict[str, list[float]]:
        """Seconds of one call in each turn, of what was computed last."""
        processes = {name: self._started[name] for name in names}
        calls = dict.fromkeys(names, 1)
        # Calls that do not wait for one another are shorter than one that is waited for, so their number is found in two steps.
        for _ in range(3):
            for name, process in processes.items():
                calls[name] = max(1, int(turn_seconds * calls[name] / process.call(calls[name])[0]))
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(turns):
            for name, process in processes.items():
                seconds[name].append(process.call(calls[name])[0] / calls[name])
        return seconds

    def _results(self, name: str, make: Any, asked: object, *arguments: object) -> dict[int, Array] | None:
        if name not in self._started:
            self._started[name] = self._stack.enter_context(OwnProcess(make, self.device, *arguments))
        try:
            results: dict[int, Array] = self._started[name].call(asked)[1]
        except EOFError:
            del self._started[name]
            return None
        return results


def compared(case: Case, contestants: Contestants, turns: int, turn_seconds: float) -> list[Row]:
    """A row for each way to compute a case."""
    right, found = contestants.right(case), contestants.found(case)
    rows = []
    for name, seconds in contestants.timed(list(found), turns, turn_seconds).items():
        typical = statistics.median(seconds)
        rows.append(
            {
                "case": case.name,
                "contestant": name,
                "seconds": typical,
                "fastest_seconds": min(seconds),
                "slowest_seconds": max(seconds),
                "tflops": case.flops / typical / 1e12 if case.flops else None,
                "gigabytes_per_second": case.bytes / typical / 1e9,
                "error": None if right is None else error_of(found[name], right),
            }
        )
    return rows


def line_of(row: Row) -> str:
    """A row as text."""
    rate = f"{row['tflops']:7.0f} TFLOP/s" if row["tflops"] else f"{row['gigabytes_per_second']:7.0f} GB/s   "
    error = "" if row["error"] is None else f"error {row['error']:.1e}"
    spread = f"{row['fastest_seconds'] * 1e6:.0f} to {row['slowest_seconds'] * 1e6:.0f}"
    return f"{row['case']:36s} {row['contestant']:24s} {row['seconds'] * 1e6:9.0f} ({spread:>16s}) us {rate} {error}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dry", action="store_true", help="small arrays on cpu:0")
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, help="operations (default: all)")
    parser.add_argument("--out", type=Path, help="file that gets each row as a line of JSON when it is known")


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    device = "cpu:0" if arguments.dry else arguments.device
    if not is_here(device):
        print(f"gpu-kernels: left out, there is no {device} here")
        return
    turns, turn_seconds = (1, 0.01) if arguments.dry else (TURNS, TURN_SECONDS)
    chosen = [case for case in cases(arguments.dry) if case.operation in (arguments.only or OPERATIONS)]
    with Contestants(device) as contestants:
        for case in chosen:
            for row in compared(case, contestants, turns, turn_seconds):
                print(json.dumps(row) if arguments.json else line_of(row), flush=True)
                if arguments.out:
                    with arguments.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
