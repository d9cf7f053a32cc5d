"""A training step of GPT-2 as a whole beside the same step piece by piece, in parts of the memory that the whole takes.

    python -m benchmarks streamed --model gpt2 --parts 2 3
    python -m benchmarks streamed --model gpt2-xl --device cuda:0 --parts 2 4 8

All make their steps in turn, from the same parameters, on the same batch; arguments and results of the streamed ones lie on the
processor. Median of wall time and of processor time, and how far losses and parameters are from those of the whole. On a GPU
the peak is what its allocator says; each is run alone there first, those with the least memory before the others.
"""

import argparse
import json
import statistics
import time
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.options import add_option
from pcp.backends import OutOfMemory, Target
from pcp.backends.xla import native_device
from pcp.ir.tree import flatten
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS, gpt2_config
from pcp.planning.capacity import human


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", choices=sorted(CONFIGURATIONS), default="gpt2-nano")
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 3], help="1/N of the memory, for each N")
    add_option(parser, "--batch", 1, "sequences")
    add_option(parser, "--context", 64, "tokens of a sequence")
    add_option(parser, "--steps", 5, "measured steps")
    add_option(parser, "--device", "cpu:0", "where the operations run")


def run(arguments: argparse.Namespace) -> None:
    """Print a row for the whole, and for each part of its memory."""
    found = CONFIGURATIONS[arguments.model]
    context = min(arguments.context, found.context)
    config = gpt2_config(found.layers, found.heads, found.width, context, found.vocabulary, found.bias)
    tokens = pcp.spec((arguments.batch, context), "i32")
    params = decoder.initial_parameters(config, 0)
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), pcp.specs_of(params), tokens, tokens)
    step = pcp.training_step(loss, pcp.optimizers.adamw(1e-3, weight_decay=0.1), clip_norm=1.0)
    batch = tuple(
        np.random.default_rng(1).integers(0, config.vocabulary, (2, arguments.batch, context), np.int32)
    )
    device = Target.of(arguments.device).device
    whole = pcp.plan(step, device)
    peak = whole.memory[str(device)].peak
    contestants = []
    for part in sorted(arguments.parts, reverse=True):
        began = time.perf_counter()
        try:
            path = pcp.streamed(step, device, peak // part)
            plan = pcp.plan(step, "cpu:0", path=path, cache=False)
        except OutOfMemory as refused:
            print(f"1/{part:<4d} within {human(peak // part)}: {refused}", flush=True)
            continue
        made = time.perf_counter() - began
        contestants.append(_Contestant(f"1/{part}", plan, step, params, batch, peak // part, made))
    contestants.append(_Contestant("whole", whole, step, params, batch, peak, 0.0))
    for each in contestants:
        each.first()
    for _ in range(arguments.steps):
        for each in contestants:
            each.step()
    reference = contestants[-1]
    for each in reversed(contestants):
        row = each.row(reference)
        print(json.dumps(row) if arguments.json else _shown(row), flush=True)


class _Contestant:
    """One way to run the step, with its own state."""

    def __init__(
        self, name: str, plan: pcp.Plan, step: Any, params: Any, batch: Any, limit: int, made: float
    ) -> None:
        self.name, self.plan, self.batch, self.limit, self.made = name, plan, batch, limit, made
        self._initial = lambda: step.initial_state(params)
        self.state: Any = None
        self.loss = 0.0
        self.peak: int | None = None
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def first(self) -> None:
        """The step that warms up, after which the peak is that of no larger contestant."""
        self.state = self._initial()
        self.step()
        self.seconds.clear()
        self.processor.clear()
        placement = self.plan.path.placement
        device = self.plan.device if placement is None else placement.targets()[0].device
        if device.kind != "cpu":
            self.peak = native_device(device).memory_stats()["peak_bytes_in_use"]

    def step(self) -> None:
        """One more step."""
        began, used = time.perf_counter(), time.process_time()
        self.state, metrics = jax.block_until_ready(self.plan.run(self.state, self.batch))
        self.loss = float(metrics["loss"])
        self.seconds.append(time.perf_counter() - began)
        self.processor.append(time.process_time() - used)

    def row(self, reference: "_Contestant") -> dict[str, Any]:
        """What was measured of it."""
        mine, theirs = (flatten(each.state["params"])[0] for each in (self, reference))
        regions = [line for line in str(self.plan).splitlines() if line.startswith("  regions")]
        return {
            "contestant": self.name,
            "limit_bytes": self.limit,
            "peak_bytes": self.peak,
            "compile_seconds": self.made,
            "seconds": statistics.median(self.seconds),
            "processor_seconds": statistics.median(self.processor),
            "loss": self.loss,
            "loss_difference": abs(self.loss - reference.loss),
            "largest_difference": max(
                float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(mine, theirs, strict=True)
            ),
            "regions": regions[0].split(None, 1)[1] if regions else "",
        }


def _shown(row: dict[str, Any]) -> str:
    peak = "" if row["peak_bytes"] is None else f", peak {human(row['peak_bytes'])}"
    return (
        f"{row['contestant']:6s} within {human(row['limit_bytes'])}{peak}: a step {row['seconds']:.3f} s, processor time "
        f"{row['processor_seconds']:.3f} s; compiled in {row['compile_seconds']:.1f} s; loss {row['loss']:.4f}, parameters "
        f"differ by {row['largest_difference']:.1e}; {row['regions']}"
    )
