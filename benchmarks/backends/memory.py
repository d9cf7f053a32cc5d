"""What a call of a training step takes, as the system counts it, beside what its plan says: by XLA and in the arena.

    python -m benchmarks memory
    taskset -c 0 python -m benchmarks memory

Each in a process of its own, on Linux: the most memory that was resident (`VmHWM`) less what was before the call. By XLA the
second call counts; in the arena, which keeps its workspace, the first. XLA's libraries for products and convolutions take
memory that its compiler does not report.
"""

import argparse
import ctypes
import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pcp
from benchmarks.own_process import OwnProcess
from pcp.ir.tree import flatten

MODELS = ("GPT-2", "UNet", "LSTM")
PLACES = ("cpu:0", "arena:cpu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)


def make_call(name: str, place: str) -> tuple[dict[str, int], Callable[[Any], int]]:
    """The bytes that a plan says, and a function that runs it and returns those of a call."""
    from tests.backends.arena.test_memory import arguments_of, gpt2_step, lstm, unet

    models = {
        "GPT-2": lambda: gpt2_step(width=768, vocabulary=20_000),
        "UNet": lambda: unet(64, 160),
        "LSTM": lambda: lstm(1024, 200),
    }
    program = models[name]()
    plan = pcp.plan(program, place)
    use = plan.memory["cpu:0"]
    np.matmul(*np.ones((2, 2048, 2048), np.float32))  # NumPy's library keeps some MB, once for a process

    def call(_: Any) -> int:
        placed = plan.place(*program.argument_tree.unflatten(arguments_of(program)))
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # begins the count of the most anew
        before = _resident("VmRSS")
        plan.backend.wait(flatten(plan.run(*placed))[0])
        return _resident("VmHWM") - before

    return {"arguments": use.arguments, "beside": use.peak - use.arguments}, call


def _resident(key: str) -> int:
    found = re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def run(options: argparse.Namespace) -> None:
    """Print a row for each model and place."""
    if not options.json:
        print(
            "| training step | | arguments, MB | beside, as planned | as measured | all, measured to planned |"
        )
        print("|---|---|---|---|---|---|")
    for name in options.models:
        for place in PLACES:
            with OwnProcess(make_call, name, place) as process:
                said = process.made
                calls = [process.call(None)[1] for _ in range(2)]
            taken = calls[place == "cpu:0"]
            ratio = (said["arguments"] + taken) / (said["arguments"] + said["beside"])
            if options.json:
                print(json.dumps({"model": name, "place": place, **said, "measured": taken, "ratio": ratio}))
                continue
            cells = (said["arguments"], said["beside"], taken)
            print(
                f"| {name} | `{place}` | {' | '.join(f'{each / 1e6:,.0f}' for each in cells)} | {ratio:.3f} |",
                flush=True,
            )
