"""What a call of a Plan costs beyond its bare executable, for growing numbers of arguments.

Both run the same compiled program on the same arrays, alternating in one process; the target is at most 15 us more
for 8 arguments and 0.15 us for each further one. Run: `python -m benchmarks plan_overhead`.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pcp
from pcp.ir.tree import flatten

COUNTS = (1, 8, 32, 128, 512)


def nested(count: int) -> dict[str, Any]:
    """Arrays nested as a model's parameters are: blocks of four."""
    rng = np.random.default_rng(count)
    names = ("weight", "bias", "scale", "offset")
    return {
        "blocks": [
            {name: rng.standard_normal(4).astype(np.float32) for name in names[: min(4, count - start)]}
            for start in range(0, count, 4)
        ]
    }


def total(tree: Any) -> pcp.Tensor:
    """A scalar that needs every leaf."""
    leaves, _ = flatten(tree)
    result = leaves[0]
    for leaf in leaves[1:]:
        result = result + leaf
    return result.sum()


def measure(functions: list[Callable[[], object]], rounds: int, calls: int) -> list[list[float]]:
    """Microseconds a call of each function, alternating between them."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, into in zip(functions, times, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            into.append((time.perf_counter() - start) / calls * 1e6)
    return times


def overhead(count: int, donate: bool, rounds: int, calls: int) -> dict[str, Any]:
    """Times of the bare executable and of the plan for `count` arguments."""
    example = nested(count)
    role = "state" if donate else "input"
    program = pcp.trace((lambda tree: tree) if donate else total, example, roles=(role,))
    plan = pcp.plan(program)
    flat = plan._border.admit((example,))
    execute = plan._executable.run
    if donate:
        held: list[Any] = [flat]
        state: list[Any] = [plan.run(example)]

        def bare() -> None:
            held[0] = execute(held[0])

        def planned() -> None:
            state[0] = plan.run(state[0])
    else:
        placed = program.argument_tree.unflatten(flat)

        def bare() -> None:
            execute(flat)

        def planned() -> None:
            plan.run(*placed)

    times = measure([bare, planned], rounds, calls)
    bare_time, plan_time = (min(entry) for entry in times)
    return {
        "arguments": count,
        "donated": donate,
        "bare_us": bare_time,
        "plan_us": plan_time,
        "overhead_us": plan_time - bare_time,
        "allowed_us": 15 + 0.15 * max(count - 8, 0),
        "spread_us": statistics.stdev(times[1]),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--calls", type=int, default=300)


def run(options: argparse.Namespace) -> None:
    """Print one line for every number of arguments, donated or not."""
    for donate in (False, True):
        for count in COUNTS:
            row = overhead(count, donate, options.rounds, options.calls)
            if options.json:
                print(json.dumps(row))
            else:
                print(
                    f"{count:4d} arguments{' donated' if donate else '':8s}  bare {row['bare_us']:7.1f} us  "
                    f"plan {row['plan_us']:7.1f} us  more {row['overhead_us']:6.1f} us  "
                    f"(allowed {row['allowed_us']:6.1f})"
                )
