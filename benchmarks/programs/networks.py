"""Training steps of ResNet-50 and of an LSTM: PCP beside JAX and PyTorch (eager, and torch.compile), in turn, each in a process
of its own.

    python -m benchmarks networks
    python -m benchmarks networks --model lstm --steps 40

All start from the same parameters, see the same batch again and again, and take AdamW with clipping. PCP takes JAX's loss. The
last column is the distance of the loss after the last step from that of PCP in float64, relative to it. "Fastest kernels" are
what a search tries first, whatever its error. A contestant that fails is left out.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.own_process import OwnProcess, Run
from benchmarks.programs import gpt2_jax, gradient_jax
from pcp.ir.tree import map_tree

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
    """

    name: str
    ready_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    loss: float = 0.0


def workload(model: str, batch: int, size: int) -> gradient_jax.Workload:
    """The network by its name, with a batch of so many samples, of so many pixels or steps each."""
    if model == "lstm":
        return gradient_jax.lstm(512, batch, size)
    return gradient_jax.resnet50(batch, size)


def _timed(step: Any) -> Run:
    def run(count: int) -> tuple[float, float]:
        used, loss = time.process_time(), 0.0
        for _ in range(count):
            loss = step()
        return time.process_time() - used, loss

    return run


def with_pcp(
    model: str,
    batch: int,
    size: int,
    tolerance: float | None = None,
    budget: float = 60.0,
    wide: bool = False,
    rounding: float | None = None,
) -> tuple[Contestant, Run]:
    """The step by PCP: as it is written, or by the fastest path within a tolerance; in float64 if `wide`.

    Arguments:
        rounding: takes the fastest kernels instead that keep so many of the bits of their operands that 2^-bits is not more.
    """
    work = workload(model, batch, size)
    params, data = work.params, work.batch
    if wide:
        params, data = map_tree(
            lambda a: a.astype(np.float64) if a.dtype == np.float32 else a, (params, data)
        )
    began = time.perf_counter()
    with jax.enable_x64(wide):
        program = pcp.from_jax(work.loss, params, *data, roles=("weight", "input", "input"))
    step = pcp.training_step(
        program, pcp.optimizers.adamw(RATE, betas=(0.9, 0.99), weight_decay=0.1), clip_norm=1.0
    )
    if rounding is None:
        plan = pcp.plan(step, tolerance=tolerance, budget=budget)
    else:
        plan = fastest(step, str(pcp.backends.device()), rounding)
    state = [step.initial_state(params)]

    def once() -> float:
        state[0], metrics = jax.block_until_ready(plan.run(state[0], data))
        return float(metrics["loss"])

    name = "PCP" if tolerance is None else f"PCP within {tolerance:g} ({plan.error or 0.0:.1e})"
    if rounding is not None:
        name = f"PCP, {FASTEST[rounding]}"
    return Contestant(name, time.perf_counter() - began), _timed(once)


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

    return Contestant("JAX", time.perf_counter() - began), _timed(once)


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
    return Contestant(name, time.perf_counter() - began), _timed(lambda: float(trainer.step(*data).item()))


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
        makers[f"PCP, {name}"] = (with_pcp, *task, None, 0.0, False, rounding)
    if not few:
        makers["torch.compile"] = (with_torch, *task, True)
        makers["PCP within a tolerance"] = (with_pcp, *task, tolerance, budget)
    with ExitStack() as stack:
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
            tried(name, each.call, 1)  # the first step warms up
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
        _, exactly = with_pcp(model, batch, size, wide=True)
        _, exact = exactly(steps + 1)
        _print(workload(model, batch, size).name, rows, exact, arguments.json)


def _print(name: str, rows: list[Contestant], exact: float, as_json: bool) -> None:
    if not as_json:
        print(f"{name}; the time of a step is the median, beside its spread and the least processor time")
    left_out = [math.nan] * max((len(row.seconds) for row in rows), default=0)
    jax_seconds = next((row.seconds for row in rows if row.name == "JAX"), left_out)
    for row in rows:
        found = {
            "contestant": row.name,
            "ready_seconds": row.ready_seconds,
            "step_seconds": statistics.median(row.seconds),
            "step_seconds_spread": statistics.pstdev(row.seconds),
            "cpu_seconds": min(row.cpu_seconds),
            "times_jax": statistics.median(a / b for a, b in zip(row.seconds, jax_seconds, strict=True)),
            "loss": row.loss,
            "loss_error": abs(row.loss - exact) / abs(exact),
        }
        if as_json:
            print(json.dumps({"model": name, **found}), flush=True)
            continue
        print(
            f"{row.name:28s} ready {row.ready_seconds:6.1f} s, step {found['step_seconds'] * 1e3:8.1f} ± "
            f"{found['step_seconds_spread'] * 1e3:5.1f} ms, processors {found['cpu_seconds'] * 1e3:8.1f} ms, "
            f"x JAX {found['times_jax']:.2f}, loss {row.loss:.5f}, error {found['loss_error']:.1e}",
            flush=True,
        )
