"""`python -m benchmarks` lists its commands where no optional package is installed."""

import subprocess
import sys
from pathlib import Path

HIDDEN = ("torch", "transformers", "iree", "ray", "egglog", "flax")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = (
        f"import runpy, sys; sys.modules |= dict.fromkeys({HIDDEN}); sys.argv = {['benchmarks', *arguments]}; "
        "runpy.run_module('benchmarks', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_all_are_listed_without_optional_packages() -> None:
    done = run("--help")
    assert done.returncode == 0, done.stderr
    assert "gpu-kernels" in done.stdout
    assert "utilisation" in done.stdout
    assert "equality" in done.stdout


def test_one_that_needs_a_package_that_is_not_installed_says_so() -> None:
    done = run("gradient_corpus")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "gradient_corpus: left out, flax is not installed; `make test-peers` installs the peers\n"
    )
