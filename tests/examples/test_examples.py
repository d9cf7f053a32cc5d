"""Every example runs as a script, with small settings, and says what it promises."""

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


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs(name: str, tmp_path: Path) -> None:
    arguments, expected = EXAMPLES[name]
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py")]
    command += [argument.format(text=text) for argument in arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in expected:
        assert part in done.stdout
    if name == "02_network_by_hand":
        assert float(done.stdout.split("last       loss ")[1].split()[0]) < 0.02
