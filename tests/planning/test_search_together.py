"""Searches in several processes, and how much their results vary."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pytest

import pcp
from pcp.models import gpt2
from pcp.planning.bench import Bench
from pcp.planning.path import Path
from pcp.planning.request import Request
from pcp.tensor import Tensor

TUNINGS = int(os.environ.get("PCP_TUNINGS", "50"))

PLANNER = """
import sys, pcp
plan = pcp.plan(pcp.load(sys.argv[1]), tolerance=1e-2, database=sys.argv[2])
print(plan.path.digest, plan.to_json()["measurements"])
"""


def test_two_processes_with_one_database_choose_the_same_path(tmp_path: FilePath) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    program = pcp.trace(function, pcp.spec((128, 384), "f32"), pcp.spec((384, 256), "f32"))
    program.save(tmp_path / "program.pcp")
    command = [sys.executable, "-c", PLANNER, str(tmp_path / "program.pcp"), str(tmp_path / "profile.sqlite")]
    environment = os.environ | {"PYTHONPATH": str(FilePath(pcp.__file__).parents[1])}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) for _ in range(2)]
    said = [process.communicate(timeout=180)[0].split() for process in both]
    assert said[0][0] == said[1][0]
    # Whoever came second waited for the first and found everything in the database.
    assert sorted(int(count) for _, count in said)[0] == 0
    assert max(int(count) for _, count in said) > 0


@pytest.mark.long
def test_fresh_tunings_of_a_block_are_about_equally_fast(tmp_path: FilePath) -> None:
    configuration = replace(gpt2.CONFIGURATIONS["gpt2-nano"], layers=1, context=128)
    parameters = gpt2.initial_parameters(configuration, 0)
    tokens = pcp.spec((4, 128), "i32")

    def loss(params: object, x: Tensor, y: Tensor) -> Tensor:
        return gpt2.loss(params, x, y, configuration)

    program = pcp.trace(loss, pcp.specs_of(parameters), tokens, tokens)
    step = pcp.training_step(program, pcp.optimizers.adamw(1e-3))
    chosen: dict[str, Path] = {}
    for count in range(TUNINGS):
        path = pcp.plan(step, tolerance=2e-2, database=tmp_path / f"{count}.sqlite").path
        chosen[path.digest] = path
    # Every path against the same plain program, in turn: each against the fastest of them.
    ratios = {}
    with Bench() as bench:
        for digest, path in chosen.items():
            request = Request(step, path.applied(step), digest, calls=40, timing_seconds=30.0)
            row = bench.measure(request)
            ratios[digest] = float(np.quantile(row.seconds, 0.25) / np.quantile(row.plain_seconds, 0.25))
    print(f"{TUNINGS} tunings chose {len(chosen)} paths: {sorted(ratios.values())} of plain")
    assert max(ratios.values()) <= 1.05 * min(ratios.values())
