"""The error of a training step that somebody else computed is PCP's own definition of an error."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.gpu.step_errors import JudgedStep

import pcp
from pcp.ir.tree import map_tree
from pcp.models.published import gpt2_config


def test_a_right_step_has_no_error_and_a_wrong_one_its_own(tmp_path: Path) -> None:
    step = JudgedStep.of_decoder(gpt2_config(1, 2, 16, 8, 17, True), 2, str(tmp_path))
    step.compute("cpu:0")
    before = step.state()
    assert int(before["step"]) == 8
    after, metrics = map_tree(
        np.asarray, pcp.plan(step.program, device="cpu:0").run(step.state(), step.tokens)
    )
    found = {"params": after["params"], "loss": metrics["loss"]}
    found |= {name: after["optimizer"][name] for name in ("first", "second")}
    assert step.error(found).error < 1e-6
    beta = 0.9
    kept = before["optimizer"]["first"]["wpe"]
    new = found["first"]["wpe"] - beta * kept
    wrong = found | {"first": found["first"] | {"wpe": beta * kept + 1.25 * new}}
    made = step.error(wrong)
    assert made.result == "0.optimizer.first.wpe"
    assert made.error == pytest.approx(0.25, rel=1e-3)
    assert made.gradients == pytest.approx(0.25, rel=1e-3)
