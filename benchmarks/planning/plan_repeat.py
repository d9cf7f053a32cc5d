"""How alike plannings of one program are that know nothing of each other: on a busy machine noise must not decide.

    python -m benchmarks plan_repeat --count 18 --size 512

Each planning of `tanh(x @ w)` has a database and a cache of its own. Afterwards all paths that were chosen, and the plain one,
are timed against the plain path in several blocks apart in time. A planning missed if its path takes more than 10 % longer than
the best of them.
"""

import argparse
import collections
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pcp
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Request

BLOCKS, APART_SECONDS, BLOCK_SECONDS = 5, 2.0, 1.0
MISSED = 1.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--count", type=int, default=18, help="plannings")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of both matrices")
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument("--budget", type=float, default=60.0)


def run(arguments: argparse.Namespace) -> None:
    """Plan, time what was chosen, and print one line a path and one for all."""
    spec = pcp.spec((arguments.size, arguments.size), "f32")
    program = pcp.trace(lambda x, w: pcp.tanh(x @ w), spec, spec)
    found = repeated(program, arguments.count, arguments.tolerance, arguments.budget)
    if arguments.json:
        print(json.dumps(found))
        return
    for path in found["paths"]:
        print(f"{path['ratio']:.3f} of the plain time  {path['count']:3} plannings  {path['kernels']}")
    print(
        f"{found['missed']} of {arguments.count} plannings missed the fastest by more than {MISSED - 1:.0%}; "
        f"a planning took {found['seconds']:.1f} s and {found['measurements']:.1f} measurements (means)"
    )


def repeated(program: pcp.Program, count: int, tolerance: float, budget: float) -> dict[str, Any]:
    """Plan a program several times, with nothing known, and time the paths that were chosen."""
    plain = pcp.Path.plain(program)
    chosen = {plain.digest: plain}
    counts: collections.Counter[str] = collections.Counter()
    seconds, measurements = 0.0, 0
    before = os.environ.get("PCP_CACHE_DIR")
    try:
        for _ in range(count):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["PCP_CACHE_DIR"] = folder
                began = time.perf_counter()
                plan = pcp.plan(
                    program, tolerance=tolerance, budget=budget, database=Path(folder) / "profile.sqlite"
                )
                seconds += time.perf_counter() - began
            measurements += plan.to_json()["measurements"]
            chosen[plan.path.digest] = plan.path
            counts[plan.path.digest] += 1
    finally:
        os.environ.pop("PCP_CACHE_DIR", None)
        if before is not None:
            os.environ["PCP_CACHE_DIR"] = before
    ratios = {digest: _ratio(program, path) for digest, path in chosen.items() if digest != plain.digest}
    ratios[plain.digest] = 1.0
    best = min(ratios.values())
    return {
        "paths": [
            {
                "ratio": ratios[digest],
                "count": counts[digest],
                "kernels": ", ".join(choice.kernel for choice in chosen[digest].choices.values()) or "plain",
            }
            for digest in sorted(ratios, key=ratios.__getitem__)
        ],
        "missed": sum(counts[digest] for digest in counts if ratios[digest] > MISSED * best),
        "seconds": seconds / count,
        "measurements": measurements / count,
    }


def _ratio(program: pcp.Program, path: pcp.Path) -> float:
    """The least ratio of several blocks: what disturbs a block makes two paths more alike."""
    with Bench() as bench:
        found = math.inf
        for _ in range(BLOCKS):
            request = Request(
                program,
                path.applied(program),
                path.digest,
                calls=5,
                timing_seconds=BLOCK_SECONDS,
                rival=math.inf,
            )
            found = min(found, bench.measure(request).ratio)
            time.sleep(APART_SECONDS)
    return found
