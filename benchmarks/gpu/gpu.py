"""A training step of a decoder on a GPU: PCP beside torch.compile, eager PyTorch and JAX, at the error of bf16 autocast.

    python -m benchmarks gpu
    python -m benchmarks gpu --tolerance 1e-2 --budget 300
    python -m benchmarks gpu --model gpt2-1.5b --out table.jsonl
    python -m benchmarks gpu --model llama-1b --batch 4 --only fastest torch.compile
    python -m benchmarks gpu --judged-batch 4 --only torch.compile fastest
    python -m benchmarks gpu --dry

Each contestant runs in a process of its own, in turns of ten steps without waiting in between. The error is that of
docs/concepts/paths.md, of every result of one step from the same warm state, beside PCP's step in full float32. GPT-2 124M is
judged as it is timed, and its contestants take turns. The larger models do not fit in float32, nor beside one another: their
errors are those of a step of fewer layers and sequences, and each contestant runs alone, with the largest batch that fits. So
does GPT-2 124M with `--judged-batch`, on a GPU of less than 100 GiB.
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
from benchmarks.gpu.contestants import Made, Task, contestant, judged
from benchmarks.gpu.sizes import MODELS, Sizes, overridden
from benchmarks.gpu.step_errors import StepError, loss_of
from benchmarks.own_process import OwnProcess
from pcp.models import decoder
from pcp.training.utilisation import model_flops, peak_of

KINDS = ("torch.compile", "planned", "fastest", "jax", "eager")
TURN = 10
Row = dict[str, Any]
Tell = Callable[[str], None]

# What proves on a processor, in a minute or two, that every line of this runs.
DRY = {"layers": 2, "width": 128, "context": 64, "vocabulary": 256, "batch": 2}


class Comparison:
    """Contestants at one model's sizes.

    Arguments:
        tolerance: of PCP's plan; None takes torch.compile's error where that is known, 0 leaves the plan out.
        budget: seconds of planning.
        turns: of each contestant, after one that warms up.
        turn: steps of a turn.
        tell: hears what is done.
        memory: that PCP's plan may take, as `8GiB`.
    """

    def __init__(
        self,
        sizes: Sizes,
        device: str,
        tolerance: float | None,
        budget: float,
        turns: int,
        turn: int,
        tell: Tell,
        memory: str | None = None,
    ) -> None:
        self.sizes, self.device, self.tell = sizes, device, tell
        self.tolerance, self.budget = tolerance, budget
        self.turns, self.turn = turns, turn
        self.memory = memory

    def rows(self, kinds: Sequence[str], done: Callable[[Row], None]) -> None:
        """Compare contestants, and give the row of each as soon as it is known."""
        with tempfile.TemporaryDirectory() as folder:
            task = Task(self.sizes.judged, self.sizes.judged_batch, self.device, folder, self.memory)
            self.tell("the step that all are judged by, in full float32")
            with OwnProcess(judged, task):
                pass
            if self.sizes.judges_itself:
                self._together(kinds, task, done)
            else:
                self._alone(kinds, task, done)

    def _together(self, kinds: Sequence[str], task: Task, done: Callable[[Row], None]) -> None:
        """All contestants at once, which take turns."""
        with ExitStack() as stack:
            processes: list[OwnProcess] = []
            for kind in kinds:
                tolerance = self._tolerance(kind, processes[0].made.error if processes else None)
                if tolerance is None:
                    continue
                cold = self._planned(task, tolerance) if kind == "planned" else None
                process = stack.enter_context(OwnProcess(contestant, kind, task, tolerance, self.budget))
                if process.made is None or process.made.error is None:
                    done(self._failed(kind, process.made, task.batch))
                    continue
                if cold is not None:
                    warm = f"planned again in {process.made.ready_seconds:.1f} s"
                    about = f"{process.made.about}; {warm}"
                    process.made = replace(process.made, ready_seconds=cold, about=about)
                processes.append(process)
                took, _ = process.call(
                    self.turn
                )  # warms up, and tells something should the rest be cut short
                self._say(process.made, took / self.turn)
            seconds: list[list[float]] = [[] for _ in processes]
            losses = [0.0] * len(processes)
            for turn in range(self.turns + 1):
                for place, process in enumerate(processes):
                    took, losses[place] = process.call(self.turn)
                    seconds[place] += [took / self.turn] * (turn > 0)  # the first turn warms up
            for process, times, loss in zip(processes, seconds, losses, strict=True):
                done(self._row(process.made, process.made.error, times, loss, task.batch))

    def _planned(self, task: Task, tolerance: float) -> float | None:
        """Plan in a process that ends, which gives back the memory that measuring took; returns how long that took."""
        with OwnProcess(contestant, "planned", task, tolerance, self.budget) as process:
            made: Made | None = process.made
        return None if made is None else made.ready_seconds

    def _alone(self, kinds: Sequence[str], judged_task: Task, done: Callable[[Row], None]) -> None:
        """One contestant after the other: its error at the sizes that are judged, then its time, with a batch that fits."""
        for kind in kinds:
            tolerance = self._tolerance(kind, None)
            if tolerance is None:
                continue
            with OwnProcess(contestant, kind, judged_task, tolerance, self.budget) as process:
                small = process.made
            if small is None or small.error is None:
                done(self._failed(kind, small, judged_task.batch))
                continue
            self._say(small)
            batch = self.sizes.batch
            while batch:
                task = Task(self.sizes.config, batch, self.device, memory=self.memory)
                with OwnProcess(contestant, kind, task, tolerance, self.budget) as process:
                    if process.made is not None:
                        if process.made.bytes or not process.made.about:
                            done(self._timed(process, small.error, batch))
                        else:
                            done(self._failed(kind, process.made, batch))
                        break
                self.tell(f"{small.name}: {batch} sequences do not fit")
                batch //= 2
            else:
                done(self._failed(kind, None, 1))

    def _timed(self, process: OwnProcess, error: StepError, batch: int) -> Row:
        seconds = []
        for turn in range(self.turns + 1):
            took, loss = process.call(self.turn)
            seconds += [took / self.turn] * (turn > 0)
        return self._row(process.made, error, seconds, loss, batch)

    def _tolerance(self, kind: str, first: StepError | None) -> float | None:
        """Of PCP's plan, by default the error of the contestant before all others; None where there is to be no plan."""
        if kind != "planned":
            return 0.0
        if self.tolerance is not None:
            return self.tolerance or None
        if first is None:
            self.tell("PCP's plan is left out: there is no peer's error to plan within; give --tolerance")
            return None
        return first.error

    def _say(self, made: Made, step: float | None = None) -> None:
        error = f", error {made.error.error:.2g}" if made.error else ""
        first = f", {step * 1e3:.1f} ms a step of the first turn" if step else ""
        self.tell(f"{made.name}: ready after {made.ready_seconds:.1f} s{error}{first}")

    @functools.cached_property
    def _flops_of_token(self) -> float:
        config = self.sizes.config
        loss = loss_of(config, decoder.parameter_shapes(config), 1)
        return model_flops(loss) / config.context

    def _row(self, made: Made, error: StepError | None, seconds: list[float], loss: float, batch: int) -> Row:
        step, sizes = statistics.median(seconds), self.sizes
        speed = batch * sizes.config.context / step
        assert error is not None
        return {
            "contestant": made.name,
            "batch": batch,
            "step_seconds": step,
            "fastest_seconds": min(seconds),
            "slowest_seconds": max(seconds),
            "tokens_per_second": speed,
            "mfu": speed * self._flops_of_token / peak_of(self.device).flops_per_second,
            "peak_bytes": made.bytes,
            "ready_seconds": made.ready_seconds,
            "error": error.error,
            "error_of": error.result,
            "gradient_error": error.gradients,
            "judged_layers": sizes.judged_layers,
            "judged_batch": sizes.judged_batch,
            "loss": loss,
            "about": made.about,
        }

    def _failed(self, kind: str, made: Made | None, batch: int) -> Row:
        about = made.about if made is not None else f"{batch} sequences do not fit in memory"
        return {"contestant": kind, "batch": batch, "about": about}


def line_of(row: Row) -> str:
    """A row as text."""
    if "step_seconds" not in row:
        return f"{row['contestant']:28s} left out: {row['about']}"
    spread = f"{row['fastest_seconds'] * 1e3:.1f} to {row['slowest_seconds'] * 1e3:.1f}"
    return (
        f"{row['contestant']:28s} {row['batch']:5d} {row['ready_seconds']:6.1f}s "
        f"{row['step_seconds'] * 1e3:7.1f} ({spread:>15s}) ms {row['tokens_per_second']:9.0f} {row['mfu']:6.1%} "
        f"{row['peak_bytes'] / 2**30:5.1f} GiB {row['error']:8.2g} {row['gradient_error']:9.2g} {row['loss']:8.4f}  "
        f"of {row['error_of']}  {row['about']}"
    )


HEAD = (
    f"{'':28s} {'batch':>5s} {'ready':>7s} {'step':>28s} {'tokens/s':>9s} {'MFU':>6s} {'memory':>9s} {'error':>8s} "
    f"{'gradients':>9s} {'loss':>8s}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", default="gpt2", choices=list(MODELS), help="which (default: gpt2)")
    parser.add_argument("--batch", type=int, help="sequences at most (default: the model's: 32, 32, 8)")
    for name, meaning in (
        ("layers", "blocks"),
        ("width", "of the residual stream; heads keep their width"),
        ("context", "tokens of a sequence"),
        ("vocabulary", "tokens that there are"),
    ):
        parser.add_argument(f"--{name}", type=int, help=f"{meaning} (default: the model's)")
    parser.add_argument(
        "--judged-batch",
        type=int,
        help="sequences of the step whose errors are known (default: the model's: 32, 2, 1)",
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument(
        "--dry", action="store_true", help=f"tiny sizes on cpu:0, one turn of one step: {DRY}"
    )
    parser.add_argument("--only", nargs="+", choices=KINDS, help="contestants, in this order (default: all)")
    parser.add_argument(
        "--tolerance",
        type=float,
        help="of PCP's plan (default: the first contestant's error for gpt2, no plan for others); 0 plans nothing",
    )
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of planning (default: 150)")
    parser.add_argument("--memory", help="that PCP's plan may take, as 8GiB (default: all that there is)")
    parser.add_argument("--turns", type=int, default=5, help=f"turns of {TURN} steps (default: 5)")
    parser.add_argument("--out", type=Path, help="file that gets each row as a line of JSON when it is known")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    device = "cpu:0" if arguments.dry else arguments.device
    if not is_here(device):
        print(f"gpu: left out, there is no {device} here")
        return
    given = {name: getattr(arguments, name) or (DRY[name] if arguments.dry else None) for name in DRY}
    sizes = overridden(MODELS[arguments.model], **given)
    if arguments.judged_batch:
        sizes = replace(sizes, judged_batch=arguments.judged_batch)
    tell = functools.partial(print, flush=True) if not arguments.json else lambda _: None
    tell(
        f"{arguments.model}: {sizes.config}, at most {sizes.batch} sequences on {device}; errors of {sizes.judged_layers} "
        f"layers and {sizes.judged_batch} sequences\n{HEAD}"
    )

    def done(row: Row) -> None:
        row = {"model": arguments.model, "context": sizes.config.context, **row}
        print(json.dumps(row) if arguments.json else line_of(row), flush=True)
        if arguments.out:
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    turns, turn = (1, 1) if arguments.dry else (arguments.turns, TURN)
    comparison = Comparison(
        sizes, device, arguments.tolerance, arguments.budget, turns, turn, tell, arguments.memory
    )
    comparison.rows(arguments.only or KINDS, done)
