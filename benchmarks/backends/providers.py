"""Single operations of the arena by NumPy and the native library, by PyTorch, and by XLA beside them.

    python -m benchmarks providers
    python -m benchmarks providers --operations matmul sum --types bf16

All run in turn on arrays that lie where they are needed; the median time of a call counts, and every result is compared with
float64. PyTorch has to be installed, and `pcp kernels build` to have made the library of small steps.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pcp
from pcp.ir import DType
from pcp.ops import conv_general

PLACES = {"XLA": "cpu:0", "arena": "arena:cpu", "torch": "torch:cpu"}
TYPES = (DType.f32, DType.bf16, DType.i32)


def _convolution(x: Any, w: Any) -> Any:
    return conv_general(x, w, padding="SAME")


OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda x, y: x @ y, ((512, 512), (512, 512))),
    "batched matmul": (lambda x, y: x @ y, ((96, 64, 64), (96, 64, 64))),
    "convolution": (_convolution, ((8, 32, 32, 16), (3, 3, 16, 32))),
    "sum of rows": (lambda x: pcp.sum(x, axis=1), ((1024, 1024),)),
    "max of columns": (lambda x: pcp.max(x, axis=0), ((1024, 1024),)),
    "exp": (pcp.exp, ((1024, 1024),)),
    "tanh": (pcp.tanh, ((1024, 1024),)),
    "add": (lambda x, y: x + y, ((1024, 1024), (1024, 1024))),
    "small add": (lambda x, y: x + y, ((64,), (64,))),
    "transposed sum": (lambda x, y: x + pcp.transpose(y), ((1024, 1024), (1024, 1024))),
    "sort": (lambda x: pcp.sort(x), ((1 << 16,),)),
}
"""Functions, and the shapes of their arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--operations", nargs="+", choices=list(OPERATIONS), help="some only")
    parser.add_argument("--types", nargs="+", type=DType, default=TYPES, help="element types")
    parser.add_argument("--calls", type=int, default=15)


def measured(name: str, dtype: DType, calls: int) -> dict[str, Any] | None:
    """Times and errors of one operation in one type; None where there is no such operation."""
    function, shapes = OPERATIONS[name]
    if dtype.is_integer and function in (pcp.exp, pcp.tanh):
        return None
    rng = np.random.default_rng(0)
    given = [
        rng.integers(-9, 9, shape).astype(dtype.numpy)
        if dtype.is_integer
        else rng.standard_normal(shape).astype(dtype.numpy)
        for shape in shapes
    ]
    wide = [x.astype(np.float64) for x in given]
    exact = np.asarray(pcp.plan(pcp.trace(function, *wide)).run(*wide))
    program = pcp.trace(function, *given)
    plans = {place: pcp.plan(program, device) for place, device in PLACES.items()}
    placed = {place: plan.place(*given) for place, plan in plans.items()}
    times: dict[str, list[float]] = {place: [] for place in PLACES}
    errors = {}
    for place, plan in plans.items():
        made = np.asarray(plan.run(*placed[place])).astype(np.float64)
        errors[place] = float(abs(made - exact).max() / max(abs(exact).max(), 1e-30))
    for _ in range(calls):
        for place, plan in plans.items():
            start = time.perf_counter()
            plan.backend.wait([plan.run(*placed[place])])
            times[place].append(time.perf_counter() - start)
    return {
        "operation": name,
        "type": str(dtype),
        "microseconds": {place: statistics.median(each) * 1e6 for place, each in times.items()},
        "least": {place: min(each) * 1e6 for place, each in times.items()},
        "errors": errors,
    }


def run(options: argparse.Namespace) -> None:
    """Print a row for each operation and type."""
    if not options.json:
        heads = [*(f"{place} (least)" for place in PLACES), *(f"error of {place}" for place in PLACES)]
        print(f"| operation | type | {' | '.join(heads)} |\n{'|---' * (2 + len(heads))}|")
    for name in options.operations or OPERATIONS:
        for dtype in options.types:
            row = measured(name, dtype, options.calls)
            if row is None:
                continue
            if options.json:
                print(json.dumps(row))
                continue
            cells = [f"{row['microseconds'][p]:,.0f} us ({row['least'][p]:,.0f})" for p in PLACES]
            cells += [f"{row['errors'][p]:.0e}" for p in PLACES]
            print(f"| {name} | `{dtype}` | {' | '.join(cells)} |", flush=True)
