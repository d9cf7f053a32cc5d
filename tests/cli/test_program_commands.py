"""`pcp run`, `pcp grad` and `pcp inspect` drive any StableHLO file from outside."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.cli import main
from pcp.ops import elementwise as e

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((3, 2)).astype(np.float32)
X = RANDOM.standard_normal((4, 3)).astype(np.float32)


def loss(params: dict[str, Any], x: Any) -> Any:
    return (pcp.tanh(x @ params["w"]) ** 2).sum()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "loss.pcp"
    pcp.trace(loss, {"w": W}, pcp.spec(X.shape, "f32")).save(path)
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "x.npz"
    np.savez(path, **{"params.w": W, "x": X})
    return path


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_run_by_name(module: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "y.npz"
    code, said, _ = command(capsys, "run", module, "--inputs", inputs, "--out", out)
    assert code == 0
    assert said.startswith("0: f32[] = ")
    np.testing.assert_allclose(np.load(out)["0"], (np.tanh(X @ W) ** 2).sum(), rtol=1e-5)


def test_run_foreign_text_by_position_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "add.mlir"
    text.write_text(
        """func.func public @main(%a: tensor<2xbf16>, %b: tensor<2xbf16>) -> (tensor<2xbf16>, tensor<2xbf16>) {
          %0 = stablehlo.add %a, %b : tensor<2xbf16>
          return %0, %a : tensor<2xbf16>, tensor<2xbf16>
        }"""
    )
    a = np.array([1, 2], ml_dtypes.bfloat16)
    np.savez(tmp_path / "x.npz", a, a)  # arr_0, arr_1
    words = ("run", text, "--inputs", tmp_path / "x.npz", "--out", tmp_path / "y.npz", "--json")
    code, said, _ = command(capsys, *words)
    assert code == 0
    assert json.loads(said)["outputs"] == {"0": "bf16[2]", "1": "bf16[2]"}
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["0"].view(ml_dtypes.bfloat16), a + a)


def test_the_gradient_runs_and_agrees(
    module: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = pcp.plan(pcp.grad(pcp.load(module), wrt=(0, 1))).run({"w": W}, X)
    for name in ("g.mlir", "g.pcp"):
        code, said, _ = command(capsys, "grad", module, "--wrt", "0,1", "--value", "--out", tmp_path / name)
        assert code == 0
        assert said.startswith(f"{tmp_path / name}: Program ")
        out = tmp_path / "g.npz"
        assert command(capsys, "run", tmp_path / name, "--inputs", inputs, "--out", out)[0] == 0
        found = np.load(out)
        assert sorted(found.files) == ["0", "1.0.w", "1.1"]
        np.testing.assert_allclose(found["1.0.w"], expected[0]["w"], rtol=1e-5)
        np.testing.assert_allclose(found["1.1"], expected[1], rtol=1e-5)


def test_results_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pcp.trace(lambda file: {"file": file + 1}, pcp.spec((), "f32")).save(tmp_path / "p.pcp")
    np.savez(tmp_path / "x.npz", **{"0": np.float32(2)})
    words = ("run", tmp_path / "p.pcp", "--inputs", tmp_path / "x.npz", "--out", tmp_path / "y.npz")
    assert command(capsys, *words)[0] == 0
    assert np.load(tmp_path / "y.npz")["file"] == 3


def test_grad_of_one_argument_as_json_and_vjp(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = command(capsys, "grad", module, "--out", tmp_path / "g.pcp", "--json")
    assert (code, json.loads(said)["results"]) == (0, {"w": "f32[3,2]"})
    code, said, _ = command(
        capsys, "grad", module, "--vjp", "--wrt", "1", "--out", tmp_path / "g.pcp", "--json"
    )
    assert code == 0
    assert json.loads(said)["arguments"] == {"params.w": "f32[3,2]", "x": "f32[4,3]", "cotangent": "f32[]"}


def test_inspect_simplified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.mlir"
    file.write_text(pcp.trace(lambda x: e.negate(-x), pcp.spec((2,), "f32")).text)
    for options, count in (((), 2), (("--simplified",), 0)):
        code, said, _ = command(capsys, "inspect", file, "--json", *options)
        assert code == 0
        assert json.loads(said)["operations"].get("negate", {"count": 0})["count"] == count


def test_grad_by_a_policy(module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = pcp.load(module)
    code, _, _ = command(capsys, "grad", module, "--remat", "nothing_saveable", "--out", tmp_path / "g.pcp")
    assert code == 0
    assert pcp.load(tmp_path / "g.pcp").digest == pcp.grad(program, remat="nothing_saveable").digest
    assert pcp.grad(program, remat="nothing_saveable").digest != pcp.grad(program).digest
    code, _, said = command(capsys, "grad", module, "--remat", "dots", "--out", tmp_path / "g.pcp")
    assert code != 0
    assert "remat='dots' is not the name of a policy" in said


def test_inspect(module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = command(capsys, "inspect", module)
    assert code == 0
    assert "params.w: f32[3,2]  weight" in said
    assert "dot_general" in said
    assert "at least 76 bytes: arguments and results" in said
    code, said, _ = command(capsys, "inspect", module, "--json")
    facts = json.loads(said)
    assert facts["operations"]["dot_general"]["flops"] == 2 * 4 * 3 * 2
    assert facts["least_memory"] == 76
    trace = tmp_path / "trace.json"
    code, said, _ = command(capsys, "inspect", module, "--trace", trace)
    assert code == 0
    assert "as a plan" in said
    assert json.loads(trace.read_text())["traceEvents"]


def test_run_names_where_nan_begins_and_prints_taps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "log.pcp"
    pcp.trace(lambda x: pcp.log(pcp.tap("x is", x)).sum(), pcp.spec((2,), "f32")).save(module)
    np.savez(tmp_path / "x.npz", x=np.array([1, -1], np.float32))
    code, said, _ = command(capsys, "run", module, "--inputs", tmp_path / "x.npz", "--taps")
    assert code == 0
    assert said.startswith("x is [ 1. -1.]\n")
    code, _, complaint = command(capsys, "run", module, "--inputs", tmp_path / "x.npz", "--check")
    assert code == 2
    assert "pcp: the result is not finite: f32[] 1 NaN\nlog made NaN at " in complaint


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, _, complaint = command(capsys, *words)
    assert code == 2
    return complaint


def test_what_is_missing_or_too_much_is_named(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, x=X)
    assert f"{path} lacks 1 of the program's 2 arguments: params.w f32[3,2]; it has: x" in refused(
        capsys, "run", module, "--inputs", path
    )
    np.savez(path, **{"params.w": W, "x": X, "y": X})
    assert "arrays that are not arguments of the program: y; the program takes: params.w, x" in refused(
        capsys, "run", module, "--inputs", path
    )
    assert "no --inputs file lacks 2 of the program's 2" in refused(capsys, "run", module)
    np.savez(path, **{"params.w": W, "x": X.astype(np.float64)})
    assert "argument x has element type float64; the plan expects f32[4,3]" in refused(
        capsys, "run", module, "--inputs", path
    )


def test_bad_files(module: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = tmp_path / "absent.npz"
    assert f"cannot read the program {absent}: there is no such file" in refused(capsys, "inspect", absent)
    assert f"cannot read arrays from {absent}" in refused(capsys, "run", module, "--inputs", absent)
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nonsense")
    assert "expected what np.savez writes" in refused(capsys, "run", module, "--inputs", tmp_path / "bad.npz")
    np.save(tmp_path / "one.npy", X)
    assert "holds one array; expected several by name" in refused(
        capsys, "run", module, "--inputs", tmp_path / "one.npy"
    )
    nowhere = tmp_path / "no" / "folder.npz"
    assert f"cannot write {nowhere}: there is no such file" in refused(
        capsys, "run", module, "--inputs", inputs, "--out", nowhere
    )
    assert "cannot write" in refused(capsys, "grad", module, "--out", tmp_path / "no" / "g.pcp")
    assert "cannot write" in refused(capsys, "grad", module, "--out", tmp_path / "no" / "g.mlir")
    assert "is not a program" in refused(capsys, "inspect", inputs)


def test_bad_wrt(module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "g.pcp"
    assert "--wrt 'x' is not a list of argument positions" in refused(
        capsys, "grad", module, "--wrt", "x", "--out", out
    )
    assert "names argument 7; the program has 2" in refused(
        capsys, "grad", module, "--wrt", "7", "--out", out
    )
    assert "--vjp and --value were both given" in refused(
        capsys, "grad", module, "--vjp", "--value", "--out", out
    )
    assert not out.exists()


@pytest.mark.parametrize("name", ["run", "grad", "inspect"])
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert f"examples:\n  pcp {name} " in capsys.readouterr().out
