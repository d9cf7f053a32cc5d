"""Folders of transformers whose matrices GPTQ or AWQ stored: the scores of what they mean, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.execution import exactly

import pcp
from pcp.importers.packed import PackedMismatch, UnsupportedPacking, unpacked
from pcp.importers.transformers_folder import read_weights
from pcp.models import decoder
from pcp.models.families import config_of
from pcp.models.kept import Kept
from pcp.models.names import from_transformers, to_transformers

SETTINGS = {
    "model_type": "qwen2", "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 64,
    "intermediate_size": 128, "max_position_embeddings": 32, "vocab_size": 24, "tie_word_embeddings": True,
}  # fmt: skip
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def packed(integers: Any, bits: int, order: list[int] | None = None) -> Any:
    """Integers along the last axis in 32 bits, one after the other."""
    many = 32 // bits
    parts = integers.astype(np.uint32).reshape(*integers.shape[:-1], -1, many)
    whole = np.zeros(parts.shape[:-1], np.uint32)
    for place in range(many):
        whole |= parts[..., order[place] if order else place] << np.uint32(bits * place)
    return whole.view(np.int32)


def matrix(
    method: str, outputs: int, inputs: int, bits: int, group: int, seed: int
) -> tuple[dict[str, Any], Any]:
    """Parts as libraries write them, and in float64 what they mean, (outputs, inputs)."""
    generator = np.random.default_rng(seed)
    integers = generator.integers(0, 1 << bits, (inputs, outputs))
    zeros = generator.integers(1, 1 << bits, (inputs // group, outputs))
    scales = generator.uniform(0.5, 1.5, zeros.shape).astype(np.float16) * np.float16(0.2 / (1 << bits))
    wide = (integers - np.repeat(zeros, group, 0)) * np.repeat(scales.astype(np.float64), group, 0)
    if method == "awq":
        parts = {
            "qweight": packed(integers, bits, AWQ_ORDER),
            "qzeros": packed(zeros, bits, AWQ_ORDER),
            "scales": scales,
        }
    else:
        of_inputs = np.ascontiguousarray(packed(np.ascontiguousarray(integers.T), bits).T)
        parts = {"qweight": of_inputs, "qzeros": packed(zeros - 1, bits), "scales": scales}
        parts["g_idx"] = (np.arange(inputs) // group).astype(np.int32)
    return parts, wide.T


def config_for(method: str, bits: int, group: int) -> dict[str, Any]:
    return {"quant_method": method, "bits": bits, "group_size": group, "version": "gemm"}


@pytest.mark.parametrize(("method", "bits", "group"), [("gptq", 4, 32), ("gptq", 8, 64), ("awq", 4, 64)])
def test_the_scores_are_those_of_what_a_folder_means(
    tmp_path: Path, method: str, bits: int, group: int
) -> None:
    config = config_of(SETTINGS, "config.json")
    names = to_transformers(decoder.initial_parameters(config, 3), config)
    kept, wide = {}, {}
    for number, (name, array) in enumerate(names.items()):
        if not name.endswith("_proj.weight"):
            kept[name], wide[name] = array, array
            continue
        parts, wide[name] = matrix(method, *array.shape, bits, group, number)
        kept |= {name.replace("weight", kind): part for kind, part in parts.items()}
    save_file(kept, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps(SETTINGS | {"quantization_config": config_for(method, bits, group)})
    )
    parameters = read_weights(tmp_path, config)
    query = parameters["blocks"][0]["attn"]["query"]["weight"]
    assert query["values"].nbytes == 64 * 64 * bits // 8
    exact = from_transformers(wide, config, "f64")
    tokens = np.random.default_rng(0).integers(0, 24, (2, 9), np.int32)

    def scores(given: Any) -> Any:
        return exactly(pcp.trace(lambda p, x: decoder.logits(p, x, config), given, tokens), given, tokens)

    right = scores(exact)
    assert np.linalg.norm(scores(parameters) - right) < 1e-5 * np.linalg.norm(right)


@pytest.mark.parametrize(("method", "bits"), [("gptq", 4), ("gptq", 8), ("awq", 4)])
def test_a_matrix_means_what_its_parts_say(method: str, bits: int) -> None:
    parts, wide = matrix(method, 40, 256, bits, 128, 7)
    found = unpacked(
        {f"a.{kind}": part for kind, part in parts.items()}, config_for(method, bits, 128), "here"
    )
    assert list(found) == ["a.weight"]
    np.testing.assert_allclose(found["a.weight"].wide(), wide, rtol=1e-6, atol=1e-6)


def test_zeros_of_the_later_version_are_as_they_stand() -> None:
    parts, _ = matrix("gptq", 8, 64, 4, 32, 7)
    given = {f"a.{kind}": part for kind, part in parts.items()}
    earlier, later = (
        unpacked(given, config_for("gptq", 4, 32) | {"checkpoint_format": form}, "here")["a.weight"]
        for form in ("gptq", "gptq_v2")
    )
    scales = np.repeat(parts["scales"].astype(np.float64), 32, 0).T
    np.testing.assert_allclose(later.wide() - earlier.wide(), scales, rtol=1e-5)


def test_symmetric_matrices_have_no_offsets() -> None:
    parts, _ = matrix("gptq", 8, 64, 4, 32, 7)
    parts["qzeros"] = packed(np.full((2, 8), 7), 4)
    found = unpacked({f"a.{kind}": part for kind, part in parts.items()}, config_for("gptq", 4, 32), "here")
    kept = found["a.weight"]
    assert isinstance(kept, Kept)
    assert sorted(kept.parts) == ["scales", "values"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"quant_method": "bitsandbytes"},
            "here has weights whose quant_method is 'bitsandbytes'; 'gptq' or 'awq' is read",
        ),
        ({"bits": 3}, "whose bits is 3; 4 or 8 is read. Store them so, or use the model as it was before"),
        ({"quant_method": "awq", "version": "gemv"}, "whose version is 'gemv'; 'gemm' is read"),
        ({"checkpoint_format": "marlin"}, "whose checkpoint_format is 'marlin'; 'gptq' or 'gptq_v2' is read"),
    ],
)
def test_other_ways_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedPacking, match=words):
        unpacked({}, config_for("gptq", 4, 32) | changes, "here")


def test_parts_that_do_not_belong_together_are_refused() -> None:
    parts, _ = matrix("gptq", 8, 64, 4, 32, 7)

    def read(**changes: Any) -> Any:
        given = {f"a.b.{kind}": part for kind, part in (parts | changes).items() if part is not None}
        return unpacked(given, config_for("gptq", 4, 32), "here")

    with pytest.raises(
        PackedMismatch, match=r"a\.b has a qweight without scales: copy or download its files again"
    ):
        read(scales=None)
    with pytest.raises(
        PackedMismatch, match=r"the parts of a\.b have shapes .*'scales': \[2, 7\].* scales of 8 outputs"
    ):
        read(scales=parts["scales"][:, :7])
    for changes in (
        {"qweight": parts["qweight"][0]},
        {"qweight": parts["qweight"].astype(np.int64)},
        {"qzeros": parts["qzeros"].astype(np.float32)},
        {"scales": parts["scales"][0]},
        {"scales": parts["scales"][:0], "qzeros": parts["qzeros"][:0]},
    ):
        with pytest.raises(PackedMismatch, match=r"the parts of a\.b have shapes"):
            read(**changes)
    with pytest.raises(UnsupportedPacking, match=r"a\.b has inputs in an order of their own \(desc_act\)"):
        read(g_idx=parts["g_idx"][::-1].copy())
    small, _ = matrix("gptq", 8, 64, 4, 16, 7)
    with pytest.raises(UnsupportedPacking, match=r"a\.b has groups of 16 inputs; a multiple of 32 is read"):
        read(**small)
