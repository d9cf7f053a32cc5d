"""`--weights random`: what is drawn for a loss in StableHLO that came without weights, and where nothing can be drawn."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.loss_files import network_loss, traced

import pcp
from pcp.cli import main
from pcp.training.data.safetensors_file import read_arrays
from pcp.training.recipes.loss_program import WrongWeights, read_loss
from pcp.training.recipes.prepare import configured, prepare
from pcp.training.recipes.random_weights import RANDOM
from pcp.training.run_folder import RunFolder

TEXT = "the quick brown fox jumps over the lazy dog. " * 40
LANGUAGE_MODEL = """
module { func.func @main(%table: tensor<64x8xbf16>, %scale: tensor<8xf32>, %shift: tensor<8xf32>, %out: tensor<64x8xf32>,
    %tokens: tensor<2x16xi64>, %targets: tensor<2x16xi64>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %count = stablehlo.constant dense<32.0> : tensor<f32>
  %0 = "stablehlo.gather"(%table, %tokens) <{dimension_numbers = #stablehlo.gather<offset_dims = [2],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 8>}>
    : (tensor<64x8xbf16>, tensor<2x16xi64>) -> tensor<2x16x8xbf16>
  %1 = stablehlo.convert %0 : (tensor<2x16x8xbf16>) -> tensor<2x16x8xf32>
  %2 = stablehlo.reshape %1 : (tensor<2x16x8xf32>) -> tensor<32x8xf32>
  %3 = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<8xf32>) -> tensor<32x8xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<32x8xf32>
  %5 = stablehlo.broadcast_in_dim %shift, dims = [1] : (tensor<8xf32>) -> tensor<32x8xf32>
  %6 = stablehlo.add %4, %5 : tensor<32x8xf32>
  %7 = stablehlo.transpose %out, dims = [1, 0] : (tensor<64x8xf32>) -> tensor<8x64xf32>
  %8 = stablehlo.dot_general %6, %7, contracting_dims = [1] x [0] : (tensor<32x8xf32>, tensor<8x64xf32>) -> tensor<32x64xf32>
  %9 = stablehlo.reduce(%8 init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<32x64xf32>, tensor<f32>) -> tensor<32xf32>
  %10 = stablehlo.broadcast_in_dim %9, dims = [0] : (tensor<32xf32>) -> tensor<32x64xf32>
  %11 = stablehlo.subtract %8, %10 : tensor<32x64xf32>
  %12 = stablehlo.exponential %11 : tensor<32x64xf32>
  %13 = stablehlo.reduce(%12 init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<32x64xf32>, tensor<f32>) -> tensor<32xf32>
  %14 = stablehlo.log %13 : tensor<32xf32>
  %15 = stablehlo.broadcast_in_dim %14, dims = [0] : (tensor<32xf32>) -> tensor<32x64xf32>
  %16 = stablehlo.subtract %11, %15 : tensor<32x64xf32>
  %17 = stablehlo.reshape %targets : (tensor<2x16xi64>) -> tensor<32x1x1xi64>
  %18 = stablehlo.iota dim = 0 : tensor<32x1x1xi64>
  %19 = stablehlo.concatenate %18, %17, dim = 2 : (tensor<32x1x1xi64>, tensor<32x1x1xi64>) -> tensor<32x1x2xi64>
  %20 = "stablehlo.gather"(%16, %19) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
    start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}>
    : (tensor<32x64xf32>, tensor<32x1x2xi64>) -> tensor<32x1xf32>
  %21 = stablehlo.reduce(%20 init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<32x1xf32>, tensor<f32>) -> tensor<f32>
  %22 = stablehlo.divide %21, %count : tensor<f32>
  %23 = stablehlo.negate %22 : tensor<f32>
  return %23 : tensor<f32> } }
"""
"""A language model as PyTorch's exporters write one: 64-bit tokens, bf16 beside f32, and no names, roles or weights."""


def written(folder: Path) -> Path:
    path = folder / "language.mlir"
    path.write_text(LANGUAGE_MODEL)
    return path


def test_scales_are_ones_shifts_are_zeros_and_the_rest_is_normal(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = read_loss(path, Path(RANDOM), seed=3)
    assert found.weight_names == ("arg0", "arg1", "arg2", "arg3")
    table, scale, shift, out = (np.asarray(found.parameters[name], np.float64) for name in found.weight_names)
    assert (scale == 1).all()
    assert (shift == 0).all()
    for matrix in (table, out):
        assert abs(matrix.mean()) < 0.003
        assert abs(matrix.std() - 0.02) < 0.003
    assert not np.allclose(table, out)
    again, other = (read_loss(path, Path(RANDOM), seed=seed).parameters["arg3"] for seed in (3, 4))
    np.testing.assert_array_equal(again, found.parameters["arg3"])
    assert (np.asarray(other) != np.asarray(again)).any()


def test_one_command_trains_a_file_without_weights_on_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("capnp", reason="no run without what the wire is made of")
    model, text, run = written(tmp_path), tmp_path / "text.txt", tmp_path / "run"
    text.write_text(TEXT)
    command = ["train", "--model", str(model), "--weights", "random", "--data", str(text), "--run", str(run)]
    short = ["--steps", "30", "--learning-rate", "0.03", "--evaluate-every", "10", "--json"]
    assert main([*command, *short]) == 0
    _, _, *records, _ = map(json.loads, capsys.readouterr().out.splitlines())
    losses = [record["validation_loss"] for record in records if "validation_loss" in record]
    assert losses[0] < np.log(64)
    assert losses == sorted(losses, reverse=True)
    trained = read_arrays(run / "trained.safetensors")[0]
    assert {name: array.shape for name, array in trained.items()} == {
        "arg0": (64, 8), "arg1": (8,), "arg2": (8,), "arg3": (64, 8),
    }  # fmt: skip


def test_a_run_keeps_what_was_drawn_by_its_seed(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    given = {"model": str(written(tmp_path)), "weights": RANDOM, "data": str(text), "steps": 2}
    tables = []
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = RunFolder.create(tmp_path / place, configured({**given, "seed": seed}))
        tables.append(np.asarray(prepare(folder).parameters["arg0"], np.float32))
        np.testing.assert_array_equal(np.asarray(prepare(folder).parameters["arg0"], np.float32), tables[-1])
    np.testing.assert_array_equal(tables[0], tables[1])
    assert (tables[0] != tables[2]).any()


def test_weights_by_roles_are_drawn(tmp_path: Path) -> None:
    found = read_loss(traced(tmp_path).model, Path(RANDOM))
    assert np.asarray(found.parameters["hidden"]["w"]).shape == (3, 16)
    assert [str(entry.spec) for entry in found.batch] == ["f32[8,3]", "f32[8]"]


def test_where_nothing_says_what_the_weights_are_none_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "network.mlir"
    network = pcp.trace(lambda w, x: pcp.mean((x @ w) ** 2), pcp.spec((3, 4), "f32"), pcp.spec((8, 3), "f32"))
    path.write_text(network.text)
    with pytest.raises(WrongWeights, match=r"does not say which of its arguments are weights.*tokens and targets; this one "
                       r"takes .*f32\[3,4\].*Give --weights a file with an array for each weight"):  # fmt: skip
        read_loss(path, Path(RANDOM))


def test_constants_are_not_drawn(tmp_path: Path) -> None:
    weights, mask = {"w": np.ones((3, 2), "f4")}, {"mask": np.ones(3, "f4")}
    program = pcp.trace(
        lambda w, b, x: pcp.mean((x * b["mask"]) @ w["w"]), weights, mask, pcp.spec((8, 3), "f32")
    )
    program.save(tmp_path / "masked.pcp")
    message = (
        r"takes constants beside its weights, which cannot be drawn: .*mask: f32\[3\]; give --weights a file"
    )
    with pytest.raises(WrongWeights, match=message):
        read_loss(tmp_path / "masked.pcp", Path(RANDOM))


def test_a_program_without_weights_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network_loss().save(tmp_path / "network.pcp")
    assert main(["train", "--model", str(tmp_path / "network.pcp")]) == 2
    assert "or draw them, with --weights random." in capsys.readouterr().err
