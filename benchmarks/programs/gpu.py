"""GPT-2's training step on a GPU: PCP beside torch.compile, eager PyTorch and JAX, all at the error of bf16 autocast.

    python -m benchmarks gpu
    python -m benchmarks gpu --tolerance 0
    python -m benchmarks gpu --tolerance 1e-2 --budget 300

Each contestant runs in a process of its own; they take turns of ten steps, each turn without waiting in between. The error is
that of docs/concepts/paths.md, of every result of one step from the same warm state, beside PCP's step in full float32. If no
tolerance is given, PCP is planned within the error that torch.compile has.
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.own_process import OwnProcess, Run
from benchmarks.programs import gpt2_jax, gpt2_jax_gpu
from benchmarks.programs.step_errors import RATE, JudgedStep, StepError
from pcp.ir.tree import map_tree
from pcp.models import gpt2
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes

TURN = 10


@dataclass
class Made:
    """A contestant, ready to run.

    Arguments:
        name: for people.
        error: of one step.
        ready_seconds: of planning and compiling.
        bytes: of GPU memory.
        about: what PCP says of its plan.
    """

    name: str
    error: StepError
    ready_seconds: float
    bytes: int
    about: str = ""


def judged(config: gpt2.GPT2Config, batch: int, device: str, folder: str) -> tuple[None, Run]:
    """The step that all are judged by, in a process that ends before the others begin."""
    JudgedStep(config, batch, folder).compute(device)
    return None, lambda _: None


def with_pcp(
    config: gpt2.GPT2Config, batch: int, folder: str, device: str, tolerance: float, budget: float
) -> tuple[Made, Run]:
    """PCP: within a tolerance on the step that all are judged by, or, if that is 0, with the fastest kernels of all families,
    whatever their error.
    """
    task = JudgedStep(config, batch, folder)
    start = time.perf_counter()
    if tolerance:
        example = (task.state(), task.tokens)
        plan = pcp.plan(task.program, device=device, tolerance=tolerance, budget=budget, example=example)
    else:
        program = prepared(task.program)
        classes = site_classes(program, device.partition(":")[0])
        chosen = kernels_by_site(classes, next(together(classes)))
        plan = pcp.plan(program, device=device, path=Path.of(program, chosen), cache=False)
    ready = time.perf_counter() - start
    state = [plan.run(task.state(), task.tokens)]
    after, metrics = map_tree(np.asarray, state[0])
    moments = {name: after["optimizer"][name] for name in ("first", "second")}
    error = task.error({"params": after["params"], "loss": metrics["loss"], **moments})
    placed = tuple(jax.device_put(each) for each in task.tokens)

    def run(steps: int) -> float:
        for _ in range(steps):
            state[0] = plan.run(state[0][0], placed)
        jax.block_until_ready(state[0])
        return float(state[0][1]["loss"])

    peak = next(iter(plan.memory.values())).peak
    name = f"PCP within {tolerance:.2g}" if tolerance else "PCP, fastest kernels"
    about = "" if plan.error is None else f"the plan's error {plan.error:.2g}"
    return Made(name, error, ready, peak, about), run


def with_torch(
    config: gpt2.GPT2Config, batch: int, folder: str, device: str, autocast: bool, compiled: bool
) -> tuple[Made, Run]:
    """PyTorch, eager or compiled; in float32 or with bf16 autocast; attention by SDPA, AdamW fused."""
    import torch

    from benchmarks.programs.gpt2_torch import Trainer

    task = JudgedStep(config, batch, folder)
    kind = device.partition(":")[0]
    placed = [torch.from_numpy(each).to(kind) for each in task.tokens]
    start = time.perf_counter()
    trainer = Trainer(task.params, config, RATE, autocast, kind, compiled)
    trainer.step(*placed)
    ready = time.perf_counter() - start
    trainer.load(task.state())
    loss = float(trainer.step(*placed).item())
    error = task.error({**trainer.state(), "loss": loss})

    def run(steps: int) -> float:
        for _ in range(steps):
            loss = trainer.step(*placed)
        return float(loss.item())

    peak = torch.cuda.max_memory_allocated() if kind == "cuda" else 0
    name = ("torch.compile" if compiled else "PyTorch") + (", bf16 autocast" if autocast else ", float32")
    return Made(name, error, ready, peak), run


def with_jax(config: gpt2.GPT2Config, batch: int, folder: str, device: str) -> tuple[Made, Run]:
    """JAX: on a GPU in bfloat16, with attention by cuDNN; elsewhere as it is written in float32."""
    task = JudgedStep(config, batch, folder)
    is_gpu = device.startswith("cuda")
    before = task.state()
    optimizer = {name: before["optimizer"][name] for name in ("first", "second", "count")}
    state = [jax.tree.map(jax.numpy.array, {"params": before["params"], **optimizer})]
    placed = tuple(jax.device_put(each) for each in task.tokens)
    start = time.perf_counter()
    loss = gpt2_jax_gpu.loss if is_gpu else gpt2_jax.loss
    step = gpt2_jax.training_step(config, RATE, loss).lower(state[0], placed).compile()
    ready = time.perf_counter() - start
    state[0], value = step(state[0], placed)
    error = task.error({**map_tree(np.asarray, state[0]), "loss": float(value)})

    def run(steps: int) -> float:
        for _ in range(steps):
            state[0], value = step(state[0], placed)
        jax.block_until_ready(state[0])
        return float(value)

    use = step.memory_analysis()
    peak = use.argument_size_in_bytes + use.output_size_in_bytes - use.alias_size_in_bytes
    return Made("JAX, bf16, cuDNN" if is_gpu else "JAX", error, ready, peak + use.temp_size_in_bytes), run


def compare(
    config: gpt2.GPT2Config,
    batch: int,
    device: str,
    tolerance: float | None,
    budget: float,
    turns: int,
    tell: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row for each contestant.

    Arguments:
        tolerance: of PCP's plan; None takes torch.compile's error, 0 leaves the plan out.
        tell: hears what is done.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        tell("a step in full float32")
        with OwnProcess(judged, config, batch, device, folder):
            pass
        processes: list[OwnProcess] = []

        def start(make: Any, *arguments: Any) -> Made:
            process = OwnProcess(make, config, batch, folder, device, *arguments)
            processes.append(stack.enter_context(process))
            made: Made = process.made
            tell(f"{made.name}: ready after {made.ready_seconds:.1f} s, error {made.error.error:.2g}")
            return made

        best = start(with_torch, True, True)
        if tolerance != 0.0:
            start(with_pcp, best.error.error if tolerance is None else tolerance, budget)
        start(with_pcp, 0.0, budget)
        start(with_jax)
        start(with_torch, True, False)
        seconds: list[list[float]] = [[] for _ in processes]
        losses = [0.0] * len(processes)
        for turn in range(turns + 1):
            for place, process in enumerate(processes):
                took, losses[place] = process.call(TURN)
                if turn:  # the first turn warms up
                    seconds[place].append(took / TURN)
        return [
            _row(process.made, times, loss, batch * config.context)
            for process, times, loss in zip(processes, seconds, losses, strict=True)
        ]


def _row(made: Made, seconds: list[float], loss: float, tokens: int) -> dict[str, Any]:
    step = statistics.median(seconds)
    return {
        "contestant": made.name,
        "step_seconds": step,
        "fastest_seconds": min(seconds),
        "slowest_seconds": max(seconds),
        "tokens_per_second": tokens / step,
        "peak_bytes": made.bytes,
        "ready_seconds": made.ready_seconds,
        "error": made.error.error,
        "error_of": made.error.result,
        "gradient_error": made.error.gradients,
        "loss": loss,
        "about": made.about,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", default="gpt2", help="a configuration of GPT-2 (default: gpt2, 124M)")
    parser.add_argument("--batch", type=int, default=32, help="sequences (default: 32)")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a sequence (default: 1024)")
    parser.add_argument(
        "--vocabulary",
        type=int,
        default=50304,
        help="tokens that there are (default: 50304, GPT-2's, padded)",
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=None,
        help="of PCP's plan (default: torch.compile's error); 0 plans nothing",
    )
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of planning (default: 150)")
    parser.add_argument("--turns", type=int, default=5, help=f"turns of {TURN} steps (default: 5)")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    if arguments.device.partition(":")[0] not in {each.kind for each in pcp.backends.devices()}:
        print(f"gpu: left out, there is no {arguments.device} here")
        return
    known = gpt2.CONFIGURATIONS[arguments.model]
    config = gpt2.GPT2Config(
        known.layers, known.heads, known.width, arguments.context, arguments.vocabulary, known.bias
    )
    tell = functools.partial(print, flush=True) if not arguments.json else lambda _: None
    rows = compare(
        config,
        arguments.batch,
        arguments.device,
        arguments.tolerance,
        arguments.budget,
        arguments.turns,
        tell,
    )
    if arguments.json:
        for row in rows:
            print(json.dumps(row))
        return
    print(f"{arguments.model}, batch {arguments.batch}, context {arguments.context}, {arguments.device}")
    print(
        f"{'':26s} {'ready':>7s} {'step':>24s} {'tokens/s':>9s} {'memory':>9s} {'error':>8s} {'gradients':>9s} {'loss':>8s}"
    )
    for row in rows:
        spread = f"{row['fastest_seconds'] * 1e3:.1f} to {row['slowest_seconds'] * 1e3:.1f}"
        print(
            f"{row['contestant']:26s} {row['ready_seconds']:6.1f}s {row['step_seconds'] * 1e3:7.1f} ({spread:>13s}) ms "
            f"{row['tokens_per_second']:9.0f} {row['peak_bytes'] / 2**30:5.1f} GiB {row['error']:8.2g} "
            f"{row['gradient_error']:9.2g} {row['loss']:8.4f}  of {row['error_of']}  {row['about']}"
        )
