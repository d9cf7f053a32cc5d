"""What `make test-gpu` says of each family, and that it runs nothing where there is no GPU."""

import os
import subprocess
import sys

import pytest
from tests.suite.on_gpu import counted, line_of


def test_each_family_has_a_line_and_one_that_only_skipped_itself_was_not_run() -> None:
    families = counted(
        {
            "passed": ["tests/kernels/gpu/test_norms.py::test_a[1]", "tests/ops/linear/test_b.py::test_b"],
            "skipped": [
                "tests/kernels/gpu/test_norms.py::test_c",
                "tests/kernels/gpu/test_joined.py::test_d",
            ],
            "failed": ["tests/ops/linear/test_b.py::test_e", "tests/test_tensor.py::test_f"],
        }
    )
    assert [line_of(name, families[name]) for name in sorted(families)] == [
        "NOT RUN  gpu/joined: 1 skipped",
        "verified gpu/norms: 1 passed, 1 skipped",
        "FAILED   ops: 1 passed, 1 failed",
        "FAILED   test_tensor: 1 failed",
    ]


@pytest.mark.cpu
def test_without_a_gpu_it_ends_at_once_and_says_what_is_expected() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.suite.on_gpu", "-p", "no:cacheprovider", __file__]
    made = subprocess.run(
        command, env={**os.environ, "PCP_TEST_PLATFORM": "cpu"}, capture_output=True, text=True, timeout=120
    )
    assert made.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        "there is no NVIDIA GPU of compute capability 8.0 or more here: PCP_TEST_PLATFORM is cpu"
        in made.stdout
    )
