"""`--at`: symbolic programs from the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.cli import main


def loss(weights: Any, x: pcp.Tensor) -> pcp.Tensor:
    return (pcp.tanh(x @ weights) ** 2).sum()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    weights, x = pcp.spec((3, 2), "f32", "weight"), pcp.spec(("batch", "length", 3), "f32")
    pcp.trace(loss, weights, x, constraints=["length <= 100"]).save(tmp_path / "loss.pcp")
    return tmp_path / "loss.pcp"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    rng = np.random.default_rng()
    arrays = {"weights": rng.normal(size=(3, 2)), "x": rng.normal(size=(4, 5, 3))}
    np.savez(tmp_path / "x.npz", **{name: value.astype(np.float32) for name, value in arrays.items()})
    return tmp_path / "x.npz"


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_inspect(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = command(capsys, "inspect", file)
    assert code == 0
    assert "x: f32[batch,length,3]  input" in said
    assert "where      length <= 100" in said
    facts = json.loads(command(capsys, "inspect", file, "--json")[1])
    assert (facts["symbols"], facts["constraints"]) == (["batch", "length"], ["length <= 100"])
    static: Any = pcp.load(file)
    facts = json.loads(command(capsys, "inspect", file, "--at", "batch=4,length=5", "--json")[1])
    assert facts["digest"] == static.at(batch=4, length=5).digest
    assert facts["flops"] > 0


@pytest.mark.parametrize("sizes", [(), ("--at", "length=5"), ("--at", "batch=4", "--at", "length=5")])
def test_run_at_the_sizes_of_the_arrays(
    file: Path, inputs: Path, sizes: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "y.npz"
    words = ("run", file, "--inputs", inputs, "--out", out, "--device", "arena:cpu", *sizes)
    code, _, wrong = command(capsys, *words)
    assert (code, wrong) == (0, "")
    given = np.load(inputs)
    np.testing.assert_allclose(
        np.load(out)["0"], (np.tanh(given["x"] @ given["weights"]) ** 2).sum(), rtol=1e-5
    )


def test_plan_at_sizes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = command(capsys, "plan", file, "--at", "batch=4,length=5", "--device", "arena:cpu")
    assert code == 0
    assert "x: f32[4,5,3]" in said


def test_the_gradient_of_a_symbolic_program_is_one(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, wrong = command(capsys, "grad", file, "--out", tmp_path / "grad.pcp")
    assert (code, wrong) == (0, "")
    made: Any = pcp.load(tmp_path / "grad.pcp")
    source: Any = pcp.load(file)
    assert made.at(batch=7, length=9).digest == pcp.grad(source.at(batch=7, length=9)).digest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("inspect", "FILE", "--at", "batch"), "--at 'batch' is no size; expected a name and a number, as --at length=512"),
        (("run", "FILE", "--at", "batch=-1"), "--at 'batch=-1' is no size"),
        (("plan", "FILE"), "whose sizes batch, length are open; expected a number for each: give --at"),
        (("plan", "FILE", "--at", "batch=2"), "whose sizes length are open"),
        (("explore", "FILE"), "whose sizes batch, length are open"),
        (("compile", "FILE", "--target", "metal", "--out", "x"), "whose sizes batch, length are open"),
        (("inspect", "FILE", "--at", "batch=2,length=101"), "(length=101) were given; expected length <= 100"),
        (("run", "FILE", "--inputs", "INPUTS", "--at", "length=6"), "expected f32[4,6,3]|has shape (4, 5, 3)"),
        (("grad", "FILE", "--out", "out.mlir"), "out.mlir is to be MLIR, but the program has the symbols batch, length"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit(
    file: Path, inputs: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"FILE": file, "INPUTS": inputs}
    code, _, said = command(capsys, *(known.get(word, word) for word in words))
    assert code == 2
    assert any(part in said for part in message.split("|")), said
