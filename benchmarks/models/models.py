"""Training steps of models that PCP did not write: PCP beside torch.compile and eager PyTorch, AdamW, in turns.

    python -m benchmarks models
    python -m benchmarks models --device cuda:0 --model vit qwen2 --budget 100
    python -m benchmarks models --only torch.compile planned --model bert --layers 2
    python -m benchmarks models --only torch.compile fastest --model bert --layers 2
    python -m benchmarks models --tolerance torch
    python -m benchmarks models --dry

PCP imports each by `pcp.from_torch` and plans it by one call, without an example: cold, and again in another process. All start
from the same weights, and take the same batch. Errors are those of the first step's gradients, each by the definition of
docs/concepts/paths.md, beside PyTorch's in float64: those of all contestants on this one batch, while "the plan's error" of a
row of PCP is that of all results on batches that were drawn for planning. Ratios are times relative to torch.compile's. A
contestant is ready when its first step has ended, counted from its module on; a line says how long each part took.
"""

import argparse
import functools
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.card import is_here
from benchmarks.models.contestants import CONTESTANTS, Made, Task, contestant, right_gradient
from benchmarks.models.zoo import MODELS
from benchmarks.own_process import OwnProcess

PEER = "torch.compile"
"""The contestant whose error may be PCP's tolerance, and whose time others are relative to."""
TURN = {"cuda": 10, "cpu": 1}
"""Steps of a turn, by the kind of device."""
DEFAULT = (PEER, "planned", "plain", "eager")
HEAD = f"{'':34s} {'ready':>8s} {'again':>8s} {'step':>34s} {'ratio':>6s} {'memory':>10s} {'error':>8s}"
Row = dict[str, Any]
Tell = Callable[[str], None]


def compare(
    task: Task,
    kinds: Sequence[str],
    tolerance: float | None,
    budget: float,
    turns: int,
    done: Callable[[Row], None],
    tell: Tell,
    *,
    once: bool = False,
) -> None:
    """Compare contestants of one model, and give the row of each.

    Arguments:
        tolerance: of PCP's plan; None for the error of torch.compile's gradients, which comes before it then.
        budget: seconds of planning.
        turns: of each contestant, after one that warms up.
        once: whether how long planning takes again is left out.
    """
    turn = TURN[task.device.partition(":")[0]]
    with OwnProcess(right_gradient, task):
        pass
    with ExitStack() as stack:
        processes: list[OwnProcess] = []
        again: dict[str, Made] = {}
        peer: Made | None = None
        for kind in kinds:
            if tolerance is None and kind == "planned":
                if peer is None or not peer.error:
                    about = (
                        f"it is to be planned at the error of {PEER}, which is not known; run that before it"
                    )
                    done({"contestant": kind, "about": about})
                    continue
                tolerance = peer.error
            cold: Made | None = None
            if kind == "planned" and not once:
                with OwnProcess(
                    contestant, kind, task, tolerance or 0.0, budget
                ) as process:  # gives its memory back
                    cold = process.made
            process = stack.enter_context(OwnProcess(contestant, kind, task, tolerance or 0.0, budget))
            if process.made is None or process.made.error is None:
                about = process.made.about if process.made else "it does not fit in memory"
                done({"contestant": kind, "about": about})
                continue
            if kind == PEER:
                peer = process.made
            if cold is not None:
                again[process.made.name] = process.made
                tell(f"again: {parts_of(process.made)}")
                process.made = replace(process.made, ready_seconds=cold.ready_seconds, parts=cold.parts)
            took, _ = process.call(turn)
            step = f"{took / turn * 1e3:.1f} ms a step of the first turn"
            tell(f"{process.made.name}: error {process.made.error:.2g}, {step}. {process.made.sites}")
            tell(f"{process.made.name}: {parts_of(process.made)}")
            processes.append(process)
        seconds: list[list[float]] = [[] for _ in processes]
        for number in range(turns + 1):
            for place, process in enumerate(processes):
                took, _ = process.call(turn)
                seconds[place] += [took / turn] * (number > 0)
        of_peer = [
            statistics.median(x) for each, x in zip(processes, seconds, strict=True) if each.made is peer
        ]
        for process, times in zip(processes, seconds, strict=True):
            ratio = statistics.median(times) / of_peer[0] if of_peer else None
            done(_row(process.made, times, again.get(process.made.name)) | {"ratio": ratio})


def parts_of(made: Made) -> str:
    """What the time until a contestant was ready was spent on, as text."""
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in made.parts.items())


def _row(made: Made, seconds: Sequence[float], again: Made | None) -> Row:
    return {
        "contestant": made.name,
        "step_seconds": statistics.median(seconds),
        "fastest_seconds": min(seconds),
        "slowest_seconds": max(seconds),
        "peak_bytes": made.bytes,
        "ready_seconds": made.ready_seconds,
        "again_seconds": again and again.ready_seconds,
        "parts": made.parts,
        "again_parts": again and again.parts,
        "error": made.error,
        "error_of": made.error_of,
        "about": made.about,
    }


def line_of(row: Row) -> str:
    """A row as text."""
    if "step_seconds" not in row:
        return f"{row['contestant']:34s} left out: {row['about']}"
    spread = f"{row['fastest_seconds'] * 1e3:.1f} to {row['slowest_seconds'] * 1e3:.1f}"
    again = "" if row["again_seconds"] is None else f"{row['again_seconds']:.1f} s"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    memory = f"{row['peak_bytes'] / 2**30:.1f} GiB" if row["peak_bytes"] else ""
    return (
        f"{row['contestant']:34s} {row['ready_seconds']:6.1f} s {again:>8s} {row['step_seconds'] * 1e3:9.1f} ms "
        f"({spread:>18s}) {ratio:>6s} {memory:>10s} {row['error']:8.2g}  of {row['error_of']}  {row['about']}"
    )


def tolerance_of(word: str) -> float | None:
    """A tolerance as it is said on the command line; None for `torch`.

    Raises:
        argparse.ArgumentTypeError: it is no number, and not that word.
    """
    if word == "torch":
        return None
    try:
        return float(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} was given; expected a number, or `torch` for the error of torch.compile's gradients"
        ) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", nargs="+", choices=list(MODELS), help="which (default: all)")
    parser.add_argument("--device", default="cpu:0", help="as cuda:0 (default: cpu:0)")
    parser.add_argument("--layers", type=int, help="how deep (default: as the model is)")
    parser.add_argument("--samples", type=int, help="of a batch (default: by model and device)")
    parser.add_argument("--tokens", type=int, help="of a sample (default: by model and device)")
    parser.add_argument(
        "--only", nargs="+", choices=list(CONTESTANTS), help=f"in this order (default: {' '.join(DEFAULT)})"
    )
    parser.add_argument(
        "--tolerance",
        type=tolerance_of,
        default=0.1,
        help="of PCP's plan, or `torch` for the error of torch.compile's gradients (default: 0.1)",
    )
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of planning (default: 150)")
    parser.add_argument("--memory", help="that PCP's plan may take, as 8GiB (default: all that there is)")
    parser.add_argument("--turns", type=int, default=5, help="of each contestant (default: 5)")
    parser.add_argument(
        "--once", action="store_true", help="plan once, in less time: not again in another process"
    )
    parser.add_argument("--dry", action="store_true", help="two layers, short samples, one turn, on cpu:0")
    parser.add_argument("--out", type=Path, help="file that gets each row as a line of JSON when it is known")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison of each model."""
    device = "cpu:0" if arguments.dry else arguments.device
    if not is_here(device):
        print(f"models: left out, there is no {device} here")
        return
    tell: Tell = functools.partial(print, flush=True) if not arguments.json else lambda _: None
    for name in arguments.model or MODELS:
        model = MODELS[name]
        samples, tokens = (1, 64) if arguments.dry else model.sizes[device.partition(":")[0]]
        samples, tokens = arguments.samples or samples, arguments.tokens or tokens
        layers = arguments.layers or (2 if arguments.dry else None)
        tell(f"\n{model.about}, {samples} samples of {tokens}, {layers or 'all'} layers, {device}\n{HEAD}")

        def done(row: Row, name: str = name, samples: int = samples, tokens: int = tokens) -> None:
            row = {"model": name, "samples": samples, "tokens": tokens, **row}
            print(json.dumps(row) if arguments.json else line_of(row), flush=True)
            if arguments.out:
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")

        with tempfile.TemporaryDirectory() as folder:
            task = Task(name, layers, samples, tokens, device, folder, arguments.memory)
            turns = 1 if arguments.dry else arguments.turns
            kinds = arguments.only or DEFAULT
            compare(
                task, kinds, arguments.tolerance, arguments.budget, turns, done, tell, once=arguments.once
            )
