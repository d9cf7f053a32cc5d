"""Gradients of losses written in JAX: PCP's of the exported StableHLO beside `jax.grad`'s, alternating in one run.

    python -m benchmarks gradient
    python -m benchmarks gradient --model gpt2 --runs 5
    python -m benchmarks gradient --model gpt2-nano --remat dots_saveable

The loss is lowered to StableHLO text once and imported by `Program.parse`; PCP differentiates that text, JAX its own function,
and XLA compiles both. Errors are distances from the gradient in float64, relative to its norm, the largest over all gradients.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.programs import gradient_jax

WORKLOADS: dict[str, Callable[[], gradient_jax.Workload]] = {
    "gpt2-nano": lambda: gradient_jax.transformer("gpt2-nano", 12, 64),
    "resnet": lambda: gradient_jax.resnet((16, 32, 64, 128), 16),
    "lstm": lambda: gradient_jax.lstm(128, 16, 64),
    "gpt2": lambda: gradient_jax.transformer("gpt2", 4, 256),
    "resnet18": lambda: gradient_jax.resnet((64, 128, 256, 512), 16),
}
SMALL = ("gpt2-nano", "resnet", "lstm")


@dataclass
class Contestant:
    """One way to the gradient, and what was measured of it."""

    name: str
    run: Callable[[], Any]
    differentiate_seconds: float
    compile_seconds: float
    temporary_bytes: int
    peak_bytes: int
    seconds: list[float] = field(default_factory=list)
    error: float = 0.0


def with_pcp(workload: gradient_jax.Workload, device: str, remat: str | None = None) -> Contestant:
    """The gradient by PCP, from the text of the loss."""
    text = jax.jit(workload.loss).lower(workload.params, *workload.batch).as_text()
    leaves = jax.tree.leaves(workload.params)
    program = pcp.Program.parse(text)
    start = time.perf_counter()
    gradient = pcp.value_and_grad(program, wrt=tuple(range(len(leaves))), remat=remat)
    differentiated = time.perf_counter()
    plan = pcp.plan(gradient, device, cache=False)
    done = time.perf_counter()
    use = next(iter(plan.memory.values()))
    placed = plan.place(*leaves, *workload.batch)
    name = "PCP" if remat is None else f"PCP, {remat}"
    return Contestant(
        name,
        lambda: plan.run(*placed),
        differentiated - start,
        done - differentiated,
        use.temporaries,
        use.peak,
    )


def with_jax(workload: gradient_jax.Workload) -> Contestant:
    """The gradient by JAX, from the function."""
    start = time.perf_counter()
    lowered = jax.jit(jax.value_and_grad(workload.loss)).lower(workload.params, *workload.batch)
    differentiated = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    use = compiled.memory_analysis()
    peak = use.argument_size_in_bytes + use.output_size_in_bytes + use.temp_size_in_bytes
    placed = jax.tree.map(jax.device_put, (workload.params, *workload.batch))
    return Contestant(
        "JAX",
        lambda: compiled(*placed),
        differentiated - start,
        done - differentiated,
        use.temp_size_in_bytes,
        peak - use.alias_size_in_bytes,
    )


def exact_gradients(workload: gradient_jax.Workload) -> list[Any]:
    """The gradients in float64, by JAX."""
    with jax.enable_x64(True):
        wide = [
            jax.tree.map(lambda a: a.astype(np.float64) if a.dtype == np.float32 else a, part)
            for part in (workload.params, *workload.batch)
        ]
        return [np.asarray(g) for g in jax.tree.leaves(jax.jit(jax.grad(workload.loss))(*wide))]


def error_of(gradients: Any, exact: list[Any]) -> float:
    """The largest distance of a gradient from the exact one, relative to the norm of all of them."""
    scale = np.sqrt(sum(float(np.sum(g * g)) for g in exact))
    found = zip(jax.tree.leaves(gradients), exact, strict=True)
    return max(float(np.linalg.norm(np.asarray(g, np.float64) - e)) for g, e in found) / scale


def compare(
    workload: gradient_jax.Workload, runs: int, device: str = "cpu:0", remat: str | None = None
) -> list[dict[str, Any]]:
    """One row for each contestant."""
    contestants = [with_pcp(workload, device), with_jax(workload)]
    if remat is not None:
        contestants.append(with_pcp(workload, device, remat))
    exact = exact_gradients(workload)
    for index in range(runs + 1):
        # The order turns by one each time, so that nobody always runs after the same neighbour.
        turn = index % len(contestants)
        for c in contestants[turn:] + contestants[:turn]:
            start = time.perf_counter()
            results = jax.block_until_ready(c.run())
            if index:
                c.seconds.append(time.perf_counter() - start)
            else:  # the first run warms up
                c.error = error_of(results[1], exact)
            del results
    theirs = contestants[1]
    return [
        {
            "workload": workload.name,
            "contestant": c.name,
            "differentiate_seconds": c.differentiate_seconds,
            "compile_seconds": c.compile_seconds,
            "run_seconds": statistics.median(c.seconds),
            "run_seconds_spread": statistics.pstdev(c.seconds),
            "times_jax": statistics.median(a / b for a, b in zip(c.seconds, theirs.seconds, strict=True)),
            "temporary_bytes": c.temporary_bytes,
            "peak_bytes": c.peak_bytes,
            "peak_times_jax": c.peak_bytes / theirs.peak_bytes,
            "error": c.error,
        }
        for c in contestants
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument(
        "--model", choices=WORKLOADS, default=None, help=f"default: {', '.join(SMALL)}, one after another"
    )
    parser.add_argument("--runs", type=int, default=None, help="measured runs (default: 20, 5 of gpt2)")
    parser.add_argument("--device", default="cpu:0", help="where PCP runs; JAX runs on its default device")
    parser.add_argument("--remat", default=None, help="also PCP with this policy, like dots_saveable")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison, of one loss or of all small ones."""
    for name in [arguments.model] if arguments.model else SMALL:
        workload = WORKLOADS[name]()
        rows = compare(
            workload, arguments.runs or (5 if name == "gpt2" else 20), arguments.device, arguments.remat
        )
        if arguments.json:
            for row in rows:
                print(json.dumps(row), flush=True)
            continue
        print(f"{workload.name}, float32; the time of a run is the median, beside its spread")
        print(
            f"{'':24s} {'diff.':>7s} {'compile':>8s} {'run':>20s} {'x JAX':>6s} "
            f"{'temporary':>10s} {'peak':>10s} {'x JAX':>6s} {'error':>8s}"
        )
        for row in rows:
            seconds = f"{row['run_seconds'] * 1e3:9.1f} ± {row['run_seconds_spread'] * 1e3:5.1f} ms"
            print(
                f"{row['contestant']:24s} {row['differentiate_seconds']:6.3f}s {row['compile_seconds']:7.2f}s "
                f"{seconds:>20s} {row['times_jax']:6.2f} {row['temporary_bytes'] / 2**20:6.1f} MiB "
                f"{row['peak_bytes'] / 2**20:6.1f} MiB {row['peak_times_jax']:6.3f} {row['error']:8.1e}",
                flush=True,
            )
