"""Programs compiled by IREE beside XLA, on the processor, alternating in one process.

    python -m benchmarks iree
    python -m benchmarks iree --model lstm --runs 30

The gradients of GPT-2, a small ResNet and an LSTM. An error is the distance of a gradient from a float64 evaluation by XLA,
relative to the norm of all of them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.programs import gradient_jax
from benchmarks.programs.gradient import error_of, exact_gradients

WORKLOADS: dict[str, Callable[[], gradient_jax.Workload]] = {
    "gpt2-nano": lambda: gradient_jax.transformer("gpt2-nano", 12, 64),
    "resnet": lambda: gradient_jax.resnet((16, 32, 64, 128), 16),
    "lstm": lambda: gradient_jax.lstm(128, 16, 64),
}
PLACES = {"XLA": "cpu:0", "IREE": "iree:llvm-cpu"}


def compare(workload: gradient_jax.Workload, runs: int) -> list[dict[str, Any]]:
    """One row for each backend: what compiling takes, milliseconds of a call, the largest error of a gradient."""
    text = jax.jit(workload.loss).lower(workload.params, *workload.batch).as_text()
    leaves = jax.tree.leaves(workload.params)
    gradient = pcp.value_and_grad(pcp.Program.parse(text), wrt=tuple(range(len(leaves))))
    exact = exact_gradients(workload)
    rows, calls = [], []
    for name, place in PLACES.items():
        start = time.perf_counter()
        plan = pcp.plan(gradient, place, cache=False)
        compiled = time.perf_counter() - start
        placed = plan.place(*leaves, *workload.batch)
        results = jax.tree.leaves(plan.run(*placed))
        found = [np.asarray(each) for each in results[-len(leaves) :]]
        rows.append({"backend": name, "compile_seconds": compiled, "error": error_of(found, exact)})
        calls.append((plan, placed))
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(runs):
        order = range(len(calls)) if turn % 2 == 0 else reversed(range(len(calls)))
        for index in order:
            plan, placed = calls[index]
            start = time.perf_counter()
            plan.backend.wait(jax.tree.leaves(plan.run(*placed)))
            times[index].append((time.perf_counter() - start) * 1e3)
    for row, taken in zip(rows, times, strict=True):
        row |= {"median_ms": statistics.median(taken), "least_ms": min(taken), "most_ms": max(taken)}
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", choices=list(WORKLOADS), help="one of the programs; all if not given")
    parser.add_argument("--runs", type=int, default=20, help="timed calls (default: 20)")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    print(
        "| gradient | backend | compiling, s | median, ms | least to most, ms | of XLA | error |\n|---|---|---|---|---|---|---|"
    )
    for name in [arguments.model] if arguments.model else WORKLOADS:
        rows = compare(WORKLOADS[name](), arguments.runs)
        for row in rows:
            if arguments.json:
                print(json.dumps({"gradient": name} | row), flush=True)
                continue
            share = row["median_ms"] / rows[0]["median_ms"]
            print(
                f"| {name} | {row['backend']} | {row['compile_seconds']:.1f} | {row['median_ms']:.1f} | "
                f"{row['least_ms']:.1f} to {row['most_ms']:.1f} | {share:.2f} | {row['error']:.1e} |",
                flush=True,
            )
