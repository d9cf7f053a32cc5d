"""How fast each kernel is beside the plain form, at the sites of GPT-2 124M.

    python -m benchmarks.planning.kernels_cpu [FAMILY...]

Every site of one layer (they are alike) is run alone, plain and with each kernel, in turns; ratios of the fastest runs of each
are printed, below 1 where the kernel is faster, with errors against float64. The table in benchmarks/results/kernels_cpu.md is
made of its lines.
"""

import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import pcp
from pcp.kernels import kernel_named, replaced, sites_of
from pcp.kernels.sites import Site
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.rewrite.raising import raised

SECONDS = 6.0
"""How long the variants of one site take turns, at least five turns."""

Arrays = list[np.ndarray[Any, Any]]


def programs() -> Iterator[tuple[str, pcp.Program]]:
    """The programs whose sites are measured."""
    config = dataclasses.replace(CONFIGURATIONS["gpt2"], layers=1)
    parameters = decoder.parameter_shapes(config)

    def tokens(batch: int, length: int) -> Any:
        return pcp.spec((batch, length), "i32")

    loss = pcp.trace(
        lambda p, x, y: decoder.loss(p, x, y, config), parameters, tokens(4, 256), tokens(4, 256)
    )
    yield "training, B=4 T=256", pcp.value_and_grad(raised(loss))
    prefill = pcp.trace(lambda p, x: decoder.logits(p, x, config), parameters, tokens(1, 512))
    yield "prefill, B=1 T=512", raised(prefill)
    scores = pcp.trace(lambda x: pcp.softmax(x), pcp.spec((4, 12, 256, 256), "f32"))
    yield "softmax alone, (4, 12, 256, 256)", pcp.vjp(raised(scores))
    yield "softmax alone, (4, 12, 256, 256)", raised(scores)


def arrays_for(site: Site) -> Arrays:
    """Random operands; integers are tokens."""
    random = np.random.default_rng(0)
    return [
        random.normal(size=entry.spec.shape).astype(np.float32)
        if entry.spec.dtype.is_float
        else random.integers(0, 50257, entry.spec.shape).astype(entry.spec.dtype.numpy)
        for entry in site.region.arguments
    ]


def error(found: Arrays, exact: Arrays) -> float:
    """The largest relative error of the results."""
    return max(
        float(np.linalg.norm(x.astype(np.float64) - y)) / max(float(np.linalg.norm(y)), 1e-300)
        for x, y in zip(found, exact, strict=True)
    )


def measured(site: Site) -> Iterator[tuple[str, float, float, int]]:
    """For plain and each kernel: its name, ratio to plain (seconds for plain), error, temporary bytes."""
    arrays = arrays_for(site)
    wide = widened(site.region)
    exact = [
        np.asarray(x) for x in pcp.plan(wide, cache=False).run(*widened_arrays(site.region.arguments, arrays))
    ]
    variants = {"plain": site.region} | {
        name: replaced(site.region, kernel_named(name)) for name in site.kernels
    }
    plans, errors = {}, {}
    for name, program in variants.items():
        plan = pcp.plan(program, cache=False)
        try:
            errors[name] = error([np.asarray(x) for x in plan.run(*arrays)], exact)
        except pcp.PCPError as failure:
            print(f"  {name}: {failure}", flush=True)
            continue
        plans[name] = plan
    fastest = dict.fromkeys(plans, float("inf"))
    started, turns = time.perf_counter(), 0
    while turns < 5 or time.perf_counter() - started < SECONDS:
        for name, plan in plans.items():
            begun = time.perf_counter()
            for result in plan.run(*arrays):
                result.block_until_ready()
            fastest[name] = min(fastest[name], time.perf_counter() - begun)
        turns += 1
    for name, seconds in fastest.items():
        ratio = seconds if name == "plain" else seconds / fastest["plain"]
        yield name, ratio, errors[name], next(iter(plans[name].memory.values())).temporaries


def main() -> None:
    """Measure and print the table."""
    wanted = set(sys.argv[1:])
    print("| where | site | kernel | time | error | temporary MiB |", "|---|---|---|---|---|---|", sep="\n")
    seen = set()
    for where, program in programs():
        for site in sites_of(program, "cpu"):
            known = site.region.digest in seen
            seen.add(site.region.digest)
            if known or site.family == "product" or (wanted and site.family not in wanted):
                continue
            for name, ratio, wrong, memory in measured(site):
                shown = f"{1e3 * ratio:.2f} ms" if name == "plain" else f"{ratio:.2f}"
                line = f"| {where} | {site.family} | {name} | {shown} | {wrong:.1e} | {memory / 2**20:.1f} |"
                print(line, flush=True)


if __name__ == "__main__":
    main()
