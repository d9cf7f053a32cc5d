"""A run on emulated machines whose Shepherd and a Worker are killed: what it ends with is what its event log leads to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.distributed import faults

ROOT = Path(faults.__file__).parents[2]


@pytest.mark.runs
def test_a_run_that_meets_two_faults_is_its_own_replay() -> None:
    words = [sys.executable, "-m", "benchmarks", "--json", "faults", "--number", "2", "--kinds", "kill -9"]
    words += ["--seconds", "60"]  # a test asserts no time
    own = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False, timeout=170)
    if "no namespaces" in done.stderr:
        pytest.skip("this system gives users no namespaces of their own")
    assert done.returncode == 0, done.stdout + done.stderr
    *outcomes, end = map(json.loads, done.stdout.splitlines())
    assert {each["party"] for each in outcomes} == {"shepherd", "worker"}
    assert (end["same"], end["failed"]) == (True, 0)
