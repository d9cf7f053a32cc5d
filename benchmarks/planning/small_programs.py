"""What a call of a small program costs, and how long the first answer takes, in the arena, by XLA and by `jax.jit`.

Twenty elementwise operations on 64 numbers that lie on the device already. All run in turn in one process; the least processor
time of a call counts, and every result is compared with float64. First answers are timed from the traced program on, with
nothing kept on disk. Run: `pcp kernels build`, which builds the library of steps, then `python -m benchmarks small_programs`.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import pcp
from pcp.backends.arena import native
from pcp.kernels.native.permission import ALLOWED

SIZE, ROUNDS = 64, 5


def chain(x: Any, y: Any, tanh: Callable[[Any], Any]) -> Any:
    """Twenty operations, each of the result of the one before."""
    for _ in range(ROUNDS):
        x = tanh((x + y) * y) - y
    return x


def contestants(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """Calls of the same function on arrays that are where they are needed."""
    program = pcp.trace(lambda x, y: chain(x, y, pcp.tanh), *[pcp.spec(x.shape, "f32")] * 2)
    calls: dict[str, Callable[[], Any]] = {}
    jitted, placed = jax.jit(lambda x, y: chain(x, y, jnp.tanh)), (jnp.asarray(x), jnp.asarray(y))
    calls["jax.jit"] = lambda: jitted(*placed)
    for name, device in (("XLA", "cpu:0"), ("arena", "arena:cpu"), ("arena, NumPy alone", "arena:cpu")):
        plan = pcp.plan(program, device)
        given = plan.place(x, y)
        calls[name] = functools.partial(plan.run, *given)
        native.runner.cache_clear()
        with mock.patch.dict("os.environ", {ALLOWED: "none"} if "alone" in name else {}):
            calls[name]()  # which makes the steps
    native.runner.cache_clear()
    return calls


def first_answers(x: Any, y: Any, count: int) -> dict[str, float]:
    """The least milliseconds from a program to its first result, where nothing is known of it."""
    times: dict[str, list[float]] = {"XLA": [], "arena": []}
    for number in range(count):
        specs = (pcp.spec(x.shape, "f32"),) * 2
        program = pcp.trace(lambda x, y, n=number: chain(x + n, y, pcp.tanh), *specs)
        for name, device in (("XLA", "cpu:0"), ("arena", "arena:cpu")):
            start = time.perf_counter()
            np.asarray(pcp.plan(program, device, cache=False).run(x, y))
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: min(each) for name, each in times.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=2000)


def run(options: argparse.Namespace) -> None:
    """Print one line for each contestant."""
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.1, 1, SIZE).astype(np.float32) for _ in range(2))
    expected = chain(x.astype(np.float64), y.astype(np.float64), np.tanh)
    calls = contestants(x, y)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(options.calls):
                call()
            times[name].append((time.process_time() - start) / options.calls * 1e6)
    first = first_answers(x, y, 5)
    for name, call in calls.items():
        error = float(np.linalg.norm(np.asarray(call()) - expected) / np.linalg.norm(expected))
        row = {
            "contestant": name,
            "call_us": min(times[name]),
            "beside_jax": min(times[name]) / min(times["jax.jit"]),
            "error": error,
            "first_answer_ms": first.get(name),
        }
        if options.json:
            print(json.dumps(row))
        else:
            answer = f"first answer {row['first_answer_ms']:7.1f} ms" if name in first else ""
            print(
                f"{name:20s} {row['call_us']:6.2f} us a call  {row['beside_jax']:5.2f} of jax.jit  error {error:.1e}  {answer}"
            )
