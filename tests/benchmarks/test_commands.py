"""`python -m benchmarks` lists its commands where no optional package is installed."""

import subprocess
import sys
from pathlib import Path

HIDDEN = "import sys; sys.modules |= dict.fromkeys(('torch', 'transformers', 'iree', 'ray', 'egglog'))"


def test_all_are_listed_without_optional_packages() -> None:
    words = f"{HIDDEN}; sys.argv = ['benchmarks', '--help']; import runpy; runpy.run_module('benchmarks', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "gpu-kernels" in done.stdout
    assert "utilisation" in done.stdout
    assert "equality" in done.stdout
