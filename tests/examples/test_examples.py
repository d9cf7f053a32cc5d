"""Every example runs as a script, with small settings, and says what it promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = "To be, or not to be, that is the question.\nWhether 'tis nobler in the mind to suffer\n" * 20

# name -> arguments, texts that the output must hold
EXAMPLES: dict[str, tuple[list[str], list[str]]] = {
    "01_operations_and_plans": ([], ["rows sum to one: True", "bound: True", "refused: matmul"]),
    "02_network_by_hand": (
        ["--steps", "200"],
        ["step    0", "NoPreviousForward: backward was called before"],
    ),
    "03_gradients_op_by_op": (["--repeats", "2"], ["embedding lookup", "buffers left over 0"]),
    "04_shakespeare": (
        ["--data", "{text}", "--steps", "12", "--layers", "1", "--width", "32", "--context", "16"],
        ["step    11", "To be, o"],
    ),
    "05_gpt2_training": (["--steps", "4", "--batch", "2", "--context", "8"], ["Gflop", "tokens/s"]),
    "06_new_operation": (
        [],
        ["agrees with NumPy: True", "agrees with PCP's own rule: True", "agrees with differences: True"],
    ),
    "07_several_backends": ([], ["xla on cpu:1", "backend"]),
}


WITH_PEERS = {"08_first_hour"}
"""Examples that need PyTorch: test_first_hour.py runs them."""


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES) | WITH_PEERS


OF_ITS_OWN = "07_several_backends"
"""The example that sets up XLA, so that it takes a process of its own; the others run one after another in one."""
RUN = """
import contextlib, io, json, runpy, sys, traceback
said = {}
for file, arguments in json.loads(sys.argv[1]):
    sys.argv, output = [file, *arguments], io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(file, run_name="__main__")
        said[file] = ["", output.getvalue()]
    except BaseException:
        said[file] = [traceback.format_exc(), output.getvalue()]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The error of each example, empty where there is none, and what it says."""
    folder = tmp_path_factory.mktemp("examples")
    text = folder / "text.txt"
    text.write_text(TEXT)
    scripts = {name: str(ROOT / "examples" / f"{name}.py") for name in EXAMPLES}
    found = {}
    for names in ([name for name in EXAMPLES if name != OF_ITS_OWN], [OF_ITS_OWN]):
        given = [[scripts[name], [each.format(text=text) for each in EXAMPLES[name][0]]] for name in names]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", RUN, json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=160,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        found |= json.loads(done.stdout.splitlines()[-1])
    return {name: found[scripts[name]] for name in EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs(name: str, said: dict[str, list[str]]) -> None:
    error, output = said[name]
    assert not error, error
    for part in EXAMPLES[name][1]:
        assert part in output
    if name == "02_network_by_hand":
        assert float(output.split("last       loss ")[1].split()[0]) < 0.02
