"""Training steps of ResNet-50 and of an LSTM: PCP beside JAX and PyTorch (eager, and torch.compile), in turn, each in a process
of its own.

    python -m benchmarks networks
    python -m benchmarks networks --model lstm --steps 40

All start from the same parameters, see the same batch again and again, take AdamW with clipping. PCP takes JAX's loss. Errors
are those of the first step beside PCP's in float64: the largest error of a gradient relative to its norm, and that of the loss.
"Fastest kernels" are what a search tries first, whatever its error. A contestant that fails is left out.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.gpu.step_errors import JUDGED, JudgedStep, StepError
from benchmarks.own_process import OwnProcess, Run
from benchmarks.programs import gpt2_jax, gradient_jax
from pcp.ir.tree import map_tree

Tree = Any
RATE = 1e-3
TOLERANCES = {"resnet50": 0.1, "lstm": 1e-2}
"""What the plain step of each is within: roundings move ResNet's numbers over kinks of ReLU, 0.03 of a norm's gradient."""
FASTEST = {math.inf: "fastest kernels", 2.0**-16: "fastest of 16 bits", 0.0: "fastest of float32"}
"""What contestants are called whose kernels round that much."""


@dataclass
class Contestant:
    """One way to run the step, and what was measured of it.

    Arguments:
        ready_seconds: until it can be called.
        seconds: of each step.
        cpu_seconds: processor time of each.
        loss: after the last one.
        error: of the first step; None if it was not judged.
    """

    name: str
    ready_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    loss: float = 0.0
    error: StepError | None = None


def workload(model: str, batch: int, size: int) -> gradient_jax.Workload:
    """The network by its name, with a batch of so many samples, of so many pixels or steps each."""
    if model == "lstm":
        return gradient_jax.lstm(512, batch, size)
    return gradient_jax.resnet50(batch, size)


@dataclass(frozen=True, slots=True)
class _Judge:
    """What the first step of each contestant is held against."""

    model: str
    batch: int
    size: int

    def step(self, folder: str) -> JudgedStep:
        """The first step in float64, in a folder."""
        program, params, data = step_of(self.model, self.batch, self.size, wide=True)
        return JudgedStep(program, params, lambda _: data, folder, warm=0)


def _timed(judge: _Judge, step: Callable[[], float], state: Callable[[], Tree]) -> Run:
    """Gives processor time and the last loss of a number of steps; or, of a folder, the error of one step."""

    def run(count: int | str) -> Any:
        if isinstance(count, str):
            loss = step()
            return judge.step(count).error({**map_tree(np.asarray, state()), "loss": loss})
        used, loss = time.process_time(), 0.0
        for _ in range(count):
            loss = step()
        return time.process_time() - used, loss

    return run


def step_of(model: str, batch: int, size: int, wide: bool = False) -> tuple[pcp.TrainingStep, Tree, Tree]:
    """PCP's step, with its first parameters and its batch; in float64 if `wide`."""
    work = workload(model, batch, size)
    params, data = work.params, work.batch
    if wide:
        params, data = map_tree(
            lambda a: a.astype(np.float64) if a.dtype == np.float32 else a, (params, data)
        )
    with jax.enable_x64(wide):
        program = pcp.from_jax(work.loss, params, *data, roles=("weight", "input", "input"))
    adamw = pcp.optimizers.adamw(RATE, betas=(0.9, 0.99), weight_decay=0.1)
    return pcp.training_step(program, adamw, clip_norm=1.0), params, data


def exactly(model: str, batch: int, size: int, folder: str) -> tuple[None, Run]:
    """Take the first step in float64, in a process that ends before the others begin."""
    _Judge(model, batch, size).step(folder).compute(str(pcp.backends.device()))
    return None, lambda _: None


def with_pcp(
    model: str,
    batch: int,
    size: int,
    tolerance: float | None = None,
    budget: float = 60.0,
    rounding: float | None = None,
) -> tuple[Contestant, Run]:
    """The step by PCP: as it is written, or by the fastest path within a tolerance.

    Arguments:
        rounding: takes the fastest kernels instead that keep so many of the bits of their operands that 2^-bits is not more.
    """
    began = time.perf_counter()
    step, params, data = step_of(model, batch, size)
    if rounding is None:
        plan = pcp.plan(step, tolerance=tolerance, budget=budget)
    else:
        plan = fastest(step, str(pcp.backends.device()), rounding)
    state = [step.initial_state(params)]

    def once() -> float:
        state[0], metrics = jax.block_until_ready(plan.run(state[0], data))
        return float(metrics["loss"])

    def now() -> Tree:
        moments = state[0]["optimizer"]
        return {"params": state[0]["params"], **{name: moments[name] for name in ("first", "second")}}

    name = "PCP" if tolerance is None else f"PCP within {tolerance:g} ({plan.error or 0.0:.1e})"
    if rounding is not None:
        name = f"PCP, {FASTEST[rounding]}"
    return Contestant(name, time.perf_counter() - began), _timed(_Judge(model, batch, size), once, now)


def with_jax(model: str, batch: int, size: int) -> tuple[Contestant, Run]:
    """The step by plain JAX."""
    work = workload(model, batch, size)
    began = time.perf_counter()
    step = gpt2_jax.training_step(None, RATE, lambda params, x, y, _: work.loss(params, x, y))
    state = [gpt2_jax.initial_state(work.params)]
    compiled = step.lower(state[0], work.batch).compile()

    def once() -> float:
        state[0], value = jax.block_until_ready(compiled(state[0], work.batch))
        return float(value)

    return Contestant("JAX", time.perf_counter() - began), _timed(
        _Judge(model, batch, size), once, lambda: {name: state[0][name] for name in JUDGED[:3]}
    )


def with_torch(model: str, batch: int, size: int, compiled: bool = False) -> tuple[Contestant, Run] | None:
    """The step by PyTorch, channels last, eager or compiled, if it is installed."""
    try:
        import torch

        from benchmarks.programs import networks_torch
        from benchmarks.programs.gpt2_torch import Trainer
    except ImportError:
        return None
    work = workload(model, batch, size)
    began = time.perf_counter()
    loss = networks_torch.lstm_loss if model == "lstm" else networks_torch.resnet50_loss
    trainer = Trainer(work.params, None, RATE, compiled=compiled, loss=loss)
    data = [torch.from_numpy(np.array(part)) for part in work.batch]
    name = "torch.compile" if compiled else "PyTorch, eager"
    return Contestant(name, time.perf_counter() - began), _timed(
        _Judge(model, batch, size), lambda: float(trainer.step(*data).item()), trainer.state
    )


def compare(
    model: str, batch: int, size: int, steps: int, tolerance: float, budget: float, few: bool = False
) -> list[Contestant]:
    """What was measured of each contestant; those that take minutes are left out if `few`."""
    task = (model, batch, size)
    makers: dict[str, tuple[Any, ...]] = {
        "JAX": (with_jax, *task),
        "PyTorch": (with_torch, *task),
        "PCP": (with_pcp, *task),
    }
    for rounding, name in FASTEST.items():
        makers[f"PCP, {name}"] = (with_pcp, *task, None, 0.0, rounding)
    if not few:
        makers["torch.compile"] = (with_torch, *task, True)
        makers["PCP within a tolerance"] = (with_pcp, *task, tolerance, budget)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        with OwnProcess(exactly, *task, folder):
            pass
        processes: dict[str, OwnProcess] = {}

        def tried(name: str, work: Callable[..., Any], *given: Any) -> Any:
            """What comes of it; None if the contestant's process ends, which is left out then."""
            try:
                return work(*given)
            except (EOFError, OSError):
                processes.pop(name, None)
                print(f"{name} is left out, its process ended with the error above", file=sys.stderr)
                return None

        for name, maker in makers.items():
            process = tried(name, OwnProcess, *maker)
            if process is None:
                continue
            stack.enter_context(process)
            if process.made is not None:
                processes[name] = process
        for name, each in list(processes.items()):
            found = tried(name, each.call, folder)  # the first step warms up
            each.made.error = found and found[1]
        for turn in range(steps):
            order = list(processes.items())
            first = turn % max(1, len(order))
            for name, each in order[first:] + order[:first]:
                found = tried(name, each.call, 1)
                if found is None:
                    continue
                seconds, (cpu_seconds, loss) = found
                each.made.seconds.append(seconds)
                each.made.cpu_seconds.append(cpu_seconds)
                each.made.loss = loss
        return [each.made for each in processes.values()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", choices=("resnet50", "lstm"), default=None, help="default: both")
    parser.add_argument("--batch", type=int, default=None, help="samples (default: 8, LSTM: 32)")
    parser.add_argument(
        "--size", type=int, default=None, help="pixels of a side (default: 224), or steps (64)"
    )
    parser.add_argument("--steps", type=int, default=None, help="measured steps (default: 5, LSTM: 20)")
    parser.add_argument(
        "--tolerance", type=float, default=None, help="of PCP's planned step (default: 0.1, LSTM: 1e-2)"
    )
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds of measuring for it (default: 60)"
    )
    parser.add_argument("--few", action="store_true", help="leave out torch.compile and the planned step")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison, of one model or of both."""
    for model in [arguments.model] if arguments.model else ["resnet50", "lstm"]:
        recurrent = model == "lstm"
        batch = arguments.batch or (32 if recurrent else 8)
        size = arguments.size or (64 if recurrent else 224)
        steps = arguments.steps or (20 if recurrent else 5)
        tolerance = arguments.tolerance or TOLERANCES[model]
        rows = compare(model, batch, size, steps, tolerance, arguments.budget, arguments.few)
        _print(workload(model, batch, size).name, rows, arguments.json)


def _print(name: str, rows: list[Contestant], as_json: bool) -> None:
    if not as_json:
        print(f"{name}; the time of a step is the median, beside its spread and the least processor time")
    left_out = [math.nan] * max((len(row.seconds) for row in rows), default=0)
    jax_seconds = next((row.seconds for row in rows if row.name == "JAX"), left_out)
    for row in rows:
        found = {
            "contestant": row.name,
            "ready_seconds": row.ready_seconds,
            "step_seconds": statistics.median(row.seconds),
            "least_seconds": min(row.seconds),
            "step_seconds_spread": statistics.pstdev(row.seconds),
            "cpu_seconds": min(row.cpu_seconds),
            "times_jax": statistics.median(a / b for a, b in zip(row.seconds, jax_seconds, strict=True)),
            "loss": row.loss,
            "gradient_error": row.error.gradients if row.error else math.nan,
            "loss_error": row.error.loss if row.error else math.nan,
        }
        if as_json:
            print(json.dumps({"model": name, **found}), flush=True)
            continue
        print(
            f"{row.name:28s} ready {row.ready_seconds:6.1f} s, step {found['step_seconds'] * 1e3:8.1f} ± "
            f"{found['step_seconds_spread'] * 1e3:5.1f} ms, processors {found['cpu_seconds'] * 1e3:8.1f} ms, "
            f"x JAX {found['times_jax']:.2f}, least {found['least_seconds'] * 1e3:.1f} ms, loss {row.loss:.5f}, "
            f"errors of the first step: gradients {found['gradient_error']:.1e}, loss {found['loss_error']:.1e}",
            flush=True,
        )
