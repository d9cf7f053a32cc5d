"""The first hour of a newcomer, as the example has it: PCP is installed, a model imported, fine-tuned and used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernels.native.test_wheel import copied

pytest.importorskip("torch")
pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_the_first_hour(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (tmp_path / "sources").mkdir()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        site,
    ]
    # Without a compiler there; where PCP runs it builds what it needs.
    subprocess.run(
        [*install, copied(tmp_path / "sources")], check=True, env={**os.environ, "CXX": "none"}, cwd=tmp_path
    )
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "08_first_hour.py", "--steps", "40", "--folder", tmp_path / "hour"],
        env={**os.environ, "PYTHONPATH": str(site)}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "gradient as by hand: True",
        "loss of the first step is PyTorch's: True",
        "loss fell: True",
        "Question: what is 2 plus 3? Answer:",
        "the same logits in transformers: True",
    ):
        assert said in done.stdout, done.stdout
