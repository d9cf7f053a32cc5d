"""GPT-2's training step on a GPU: PCP with the fastest kernels of every family, or as it is planned, beside PyTorch's.

    python -m benchmarks gpu
    python -m benchmarks gpu --tolerance 0.3 --budget 150

Contestants take turns of ten steps, each turn without waiting in between, in processes of their own. The error is that of the
gradients of the first step: for each array the distance from PyTorch's in float32, relative to its norm; the largest of all
arrays, and the median.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.own_process import OwnProcess, Run
from pcp.ir.tree import flatten
from pcp.models import gpt2
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes

RATE, DECAY = 1e-3, 0.9
TURN = 10
Arrays = list[np.ndarray[Any, Any]]


@dataclass
class Made:
    """A contestant, ready to run.

    Arguments:
        name: for people.
        gradients: of the first step, in order.
        ready_seconds: of planning and compiling.
        bytes: of GPU memory; filled in at the end by PyTorch.
        about: what PCP says of its plan.
    """

    name: str
    gradients: Arrays
    ready_seconds: float
    bytes: int = 0
    about: str = ""


def _first(config: gpt2.GPT2Config, batch: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    tokens = tuple(rng.integers(0, config.vocabulary, (batch, config.context), np.int32) for _ in range(2))
    return gpt2.initial_parameters(config, 0), tokens


def with_pcp(
    config: gpt2.GPT2Config, batch: int, device: str, tolerance: float, budget: float
) -> tuple[Made, Run]:
    """PCP: within a tolerance, or with the fastest kernels of all families, whatever their error, if that is 0."""
    params, first = _first(config, batch)
    tokens = pcp.spec((batch, config.context), "i32")
    start = time.perf_counter()
    loss = pcp.trace(lambda p, x, y: gpt2.loss(p, x, y, config), pcp.specs_of(params), tokens, tokens)
    step = pcp.training_step(
        loss, pcp.optimizers.adamw(RATE, betas=(DECAY, 0.99), weight_decay=0.1), clip_norm=1.0
    )
    if tolerance:
        plan = pcp.plan(step, device=device, tolerance=tolerance, budget=budget, cache=False)
    else:
        program = prepared(step)
        classes = site_classes(program, device.partition(":")[0])
        chosen = kernels_by_site(classes, next(together(classes)))
        plan = pcp.plan(program, device=device, path=Path.of(program, chosen), cache=False)
    ready = time.perf_counter() - start
    state = [plan.run(step.initial_state(params), first)[0]]
    moments = flatten(state[0]["optimizer"]["first"])[0]
    gradients = [np.asarray(each) / (1 - DECAY) for each in moments]
    placed = [jax.device_put(each) for each in first]

    def run(steps: int) -> float:
        for _ in range(steps):
            state[0], metrics = plan.run(state[0], tuple(placed))
        jax.block_until_ready(state[0])
        return float(metrics["loss"])

    peak = next(iter(plan.memory.values())).peak
    name = f"PCP within {tolerance:g}" if tolerance else "PCP, fastest kernels"
    about = "" if plan.error is None else f"error {plan.error:.2g}, {len(plan.path.choices)} choices"
    return Made(name, gradients, ready, peak, about), run


def with_torch(
    config: gpt2.GPT2Config, batch: int, device: str, autocast: bool, compiled: bool
) -> tuple[Made, Run]:
    """PyTorch, eager or compiled; in float32 or with bf16 autocast; attention by SDPA, AdamW fused."""
    import torch

    from benchmarks.programs.gpt2_torch import Trainer

    kind = device.partition(":")[0]
    params, first = _first(config, batch)
    start = time.perf_counter()
    trainer = Trainer(params, config, RATE, autocast, kind, compiled)
    placed = [torch.from_numpy(each).to(kind) for each in first]
    trainer.step(*placed)
    ready = time.perf_counter() - start
    moments = (trainer.optimizer.state[leaf]["exp_avg"] for leaf in trainer.leaves)
    gradients = [each.cpu().numpy() / (1 - DECAY) for each in moments]
    wait: Callable[[], None] = torch.cuda.synchronize if kind == "cuda" else lambda: None

    def run(steps: int) -> float:
        for _ in range(steps):
            loss = trainer.step(*placed)
        wait()
        return float(loss.item())

    run(2)
    peak = torch.cuda.max_memory_allocated() if kind == "cuda" else 0
    name = ("torch.compile" if compiled else "PyTorch") + (", bf16 autocast" if autocast else ", float32")
    return Made(name, gradients, ready, peak), run


def compare(
    config: gpt2.GPT2Config, batch: int, device: str, tolerance: float, budget: float, turns: int
) -> list[dict[str, Any]]:
    """One row for each contestant."""
    with OwnProcess(with_torch, config, batch, device, False, False) as exact:
        right: Arrays = exact.made.gradients
    makers: list[tuple[Any, ...]] = [
        (with_pcp, config, batch, device, tolerance, budget),
        (with_torch, config, batch, device, True, True),
        (with_torch, config, batch, device, True, False),
    ]
    with ExitStack() as stack:
        processes = [stack.enter_context(OwnProcess(*maker)) for maker in makers]
        seconds: list[list[float]] = [[] for _ in processes]
        losses = [0.0] * len(processes)
        for turn in range(turns + 1):
            for place, process in enumerate(processes):
                took, losses[place] = process.call(TURN)
                if turn:  # the first turn warms up
                    seconds[place].append(took / TURN)
        return [
            _row(process.made, times, loss, right, batch * config.context)
            for process, times, loss in zip(processes, seconds, losses, strict=True)
        ]


def _row(made: Made, seconds: list[float], loss: float, right: Arrays, tokens: int) -> dict[str, Any]:
    errors = [
        float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
        for found, exact in zip(made.gradients, right, strict=True)
    ]
    step = statistics.median(seconds)
    return {
        "contestant": made.name,
        "step_seconds": step,
        "fastest_seconds": min(seconds),
        "slowest_seconds": max(seconds),
        "tokens_per_second": tokens / step,
        "peak_bytes": made.bytes,
        "ready_seconds": made.ready_seconds,
        "largest_gradient_error": max(errors),
        "median_gradient_error": statistics.median(errors),
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
        "--tolerance", type=float, default=0.0, help="0 (default): the fastest kernels, whatever their error"
    )
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of planning (default: 150)")
    parser.add_argument("--turns", type=int, default=5, help=f"turns of {TURN} steps (default: 5)")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    if arguments.device.partition(":")[0] not in {each.kind for each in pcp.backends.devices()}:
        print(f"gpu: left out, there is no {arguments.device} here")
        return
    known = gpt2.configuration(arguments.model)
    config = gpt2.GPT2Config(
        known.layers, known.heads, known.width, arguments.context, arguments.vocabulary, known.bias
    )
    rows = compare(
        config, arguments.batch, arguments.device, arguments.tolerance, arguments.budget, arguments.turns
    )
    if arguments.json:
        for row in rows:
            print(json.dumps(row))
        return
    print(f"{arguments.model}, batch {arguments.batch}, context {arguments.context}, {arguments.device}")
    print(
        f"{'':26s} {'ready':>7s} {'step':>24s} {'tokens/s':>9s} {'memory':>9s} {'gradients, worst':>16s} {'median':>8s}"
    )
    for row in rows:
        spread = f"{row['fastest_seconds'] * 1e3:.1f} to {row['slowest_seconds'] * 1e3:.1f}"
        print(
            f"{row['contestant']:26s} {row['ready_seconds']:6.1f}s {row['step_seconds'] * 1e3:7.1f} ({spread:>13s}) ms "
            f"{row['tokens_per_second']:9.0f} {row['peak_bytes'] / 2**30:5.1f} GiB {row['largest_gradient_error']:16.2g} "
            f"{row['median_gradient_error']:8.2g}  {row['about']}"
        )
