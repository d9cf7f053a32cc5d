"""`python -m benchmarks` lists its commands where no optional package is installed."""

import json
import subprocess
import sys
from pathlib import Path

HIDDEN = ("torch", "transformers", "iree", "ray", "egglog", "flax")


COMMANDS = ("--help", "gradient_corpus")
RUN = f"""
import contextlib, io, json, runpy, sys
sys.modules |= dict.fromkeys({HIDDEN})
done = []
for command in {COMMANDS}:
    sys.argv, code = ["benchmarks", command], 0
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            runpy.run_module("benchmarks", run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
    done.append([code, out.getvalue(), error.getvalue()])
print(json.dumps(done))
"""
"""One process runs them one after another: most of its time goes to imports."""


def test_all_are_listed_and_one_whose_package_is_missing_says_so() -> None:
    made = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (code, listed, _), missing = json.loads(made.stdout)
    assert code == 0
    for name in ("gpu-kernels", "utilisation", "equality"):
        assert name in listed
    said = "gradient_corpus: left out, flax is not installed; `make test-peers` installs the peers\n"
    assert missing == [1, "", said]
