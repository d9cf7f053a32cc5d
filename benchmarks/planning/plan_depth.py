"""What planning a training step within a tolerance takes with depth, from an empty database and an empty cache.

    python -m benchmarks plan_depth --layers 12 24 --width 768 --context 256 --batch 4

Equal layers are measured once, so only what is measured of the whole program grows with their number. The last line is the time
for the most layers relative to that for the fewest.
"""

import argparse
import collections
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pcp
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.published import gpt2_config


class Phases(logging.Handler):
    """Adds up what the stages of measurements took, those of sites alone and those of the whole program, as they are logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seconds: dict[str, float] = collections.defaultdict(float)

    def emit(self, record: logging.LogRecord) -> None:
        """Take one stage."""
        if isinstance(record.args, tuple) and len(record.args) == 3 and "took" in record.msg:
            path, stage, seconds = record.args
            of = "site" if "@" in str(path) else "whole"
            self.seconds[f"{of}: {stage}"] += float(str(seconds))


def step_of(config: DecoderConfig, batch: int) -> pcp.Program:
    """The training step that `python -m benchmarks gpt2` runs."""
    tokens = pcp.spec((batch, config.context), "i32")
    params = pcp.specs_of(decoder.initial_parameters(config, 0))
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), params, tokens, tokens)
    optimizer = pcp.optimizers.adamw(1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    return pcp.training_step(loss, optimizer, clip_norm=1.0)


def measured(
    config: DecoderConfig, batch: int, device: str, tolerance: float, budget: float
) -> dict[str, Any]:
    """Plan once, with nothing known."""
    phases, log = Phases(), logging.getLogger("pcp.planning.measuring.bench")
    step = step_of(config, batch)
    before, level = os.environ.get("PCP_CACHE_DIR"), log.level
    log.addHandler(phases)
    log.setLevel(logging.DEBUG)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PCP_CACHE_DIR"] = folder
        database = Path(folder) / "profile.sqlite"
        try:
            began = time.perf_counter()
            plan = pcp.plan(step, device=device, tolerance=tolerance, database=database, budget=budget)
            seconds = time.perf_counter() - began
            began = time.perf_counter()
            pcp.plan(step, device=device, tolerance=tolerance, database=database, budget=budget)
            again = time.perf_counter() - began
        finally:
            log.removeHandler(phases)
            log.setLevel(level)
            os.environ.pop("PCP_CACHE_DIR") if before is None else os.environ.update(PCP_CACHE_DIR=before)
    row = plan.measurement
    return {
        "layers": config.layers,
        "seconds": seconds,
        "again_seconds": again,
        "measurements": plan.to_json()["measurements"],
        "times_plain": None if row is None or not row.seconds else row.ratio,
        "error": plan.error,
        "phases": dict(sorted(phases.seconds.items(), key=lambda each: -each[1])),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 24], help="depths (default: 12 24)")
    parser.add_argument("--width", type=int, default=256, help="of the layers (default: 256)")
    parser.add_argument("--vocabulary", type=int, default=4096, help="default: 4096")
    parser.add_argument("--context", type=int, default=256, help="tokens of a sequence (default: 256)")
    parser.add_argument("--batch", type=int, default=4, help="sequences (default: 4)")
    parser.add_argument("--device", default="cpu:0", help="where it is planned for")
    parser.add_argument("--tolerance", type=float, default=1e-2, help="default: 1e-2")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds of measuring (default: 600)")


def run(arguments: argparse.Namespace) -> None:
    """Print what planning took, phase by phase."""
    made = []
    for layers in arguments.layers:
        config = gpt2_config(
            layers,
            max(1, arguments.width // 64),
            arguments.width,
            arguments.context,
            arguments.vocabulary,
            True,
        )
        row = measured(config, arguments.batch, arguments.device, arguments.tolerance, arguments.budget)
        made.append(row)
        if arguments.json:
            print(json.dumps(row), flush=True)
            continue
        ratio = "-" if row["times_plain"] is None else f"{row['times_plain']:.2f}"
        print(
            f"{layers} layers: {row['seconds']:.1f} s, {row['measurements']} measurements, {ratio} of the plain time; "
            f"the second time {row['again_seconds']:.1f} s"
        )
        others = row["seconds"] - sum(row["phases"].values())
        for phase, seconds in [*row["phases"].items(), ("programs, and starting the child", others)]:
            print(f"    {seconds:7.2f} s  {phase}", flush=True)
    if len(made) > 1 and not arguments.json:
        few, many = min(made, key=lambda row: row["layers"]), max(made, key=lambda row: row["layers"])
        print(
            f"{many['layers']} layers take {many['seconds'] / few['seconds']:.2f} times as long as {few['layers']}"
        )
