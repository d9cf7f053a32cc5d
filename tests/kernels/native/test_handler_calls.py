"""No call ends a process, whatever it says of its arrays: handlers refuse what they are not for."""

import os
import subprocess
import sys

import pytest

from pcp.kernels.native import LIBRARIES
from pcp.kernels.native.compiling import compiler


def lines(seed: int, count: int) -> list[str]:
    command = [sys.executable, "-m", "tests.kernels.native.handler_calls", str(seed), str(count)]
    on_processor = os.environ | {"JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=900, env=on_processor
    )
    said = found.stdout.splitlines()
    assert found.returncode == 0, (said[-1:], found.stderr[-1000:])
    return said


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_changed_calls_are_refused_or_taken() -> None:
    said = lines(1, 60)
    every = {handler for library in LIBRARIES.values() for handler in library.handlers}
    assert set(said[0].split()[1:]) == every
    refused = [line for line in said if line.startswith("said ") and len(line) > len("said ")]
    assert len(refused) >= 30
    assert all("INVALID_ARGUMENT" in line or "Wrong buffer dtype" in line for line in refused)


@pytest.mark.long
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("seed", range(2, 6))
def test_thousands_of_changed_calls(seed: int) -> None:
    assert lines(seed, 1500)[-1].startswith("said")
