"""GPT-2 weights by the names of `transformers`: there and back, from a file, and refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pcp.importers.weights import map_weights
from pcp.ir.tree import flatten, map_tree
from pcp.models import gpt2
from pcp.models.gpt2_weights import from_transformers, to_transformers, transformers_name
from pcp.models.transformers_weights import MisshapenWeights, MissingWeights, UnexpectedWeights

CONFIG = gpt2.GPT2Config(layers=2, heads=2, width=4, context=6, vocabulary=7)


def random_parameters() -> Any:
    rng = np.random.default_rng(1)
    return map_tree(lambda s: rng.normal(size=s.shape).astype(np.float32), gpt2.parameter_shapes(CONFIG))


def assert_equal(ours: Any, theirs: Any) -> None:
    assert flatten(ours)[1] == flatten(theirs)[1]
    for a, b in zip(flatten(ours)[0], flatten(theirs)[0], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("wte", "transformer.wte.weight"),
        ("wpe", "transformer.wpe.weight"),
        ("blocks.11.ln_1.scale", "transformer.h.11.ln_1.weight"),
        ("blocks.0.attn.qkv.weight", "transformer.h.0.attn.c_attn.weight"),
        ("blocks.0.attn.out.bias", "transformer.h.0.attn.c_proj.bias"),
        ("blocks.1.mlp.up.weight", "transformer.h.1.mlp.c_fc.weight"),
        ("blocks.1.mlp.down.bias", "transformer.h.1.mlp.c_proj.bias"),
        ("ln_f.bias", "transformer.ln_f.bias"),
    ],
)
def test_names(ours: str, theirs: str) -> None:
    assert transformers_name(ours) == theirs


def test_there_and_back() -> None:
    parameters = random_parameters()
    tensors = to_transformers(parameters)
    assert len(tensors) == len(flatten(parameters)[0])
    assert_equal(from_transformers(tensors, CONFIG), parameters)


def test_a_published_file_has_no_prefix_and_holds_masks_and_a_tied_head(tmp_path: Path) -> None:
    parameters = random_parameters()
    tensors = {
        name.removeprefix("transformer."): array for name, array in to_transformers(parameters).items()
    }
    tensors |= {f"h.{block}.attn.bias": np.ones((1, 1, 6, 6), np.uint8) for block in range(2)}
    tensors |= {"h.0.attn.masked_bias": np.float32([-1e4]), "lm_head.weight": parameters["wte"].copy()}
    save_file(tensors, tmp_path / "model.safetensors")
    assert_equal(from_transformers(map_weights(tmp_path / "model.safetensors"), CONFIG), parameters)


def test_half_precision_becomes_single() -> None:
    tensors = {name: array.astype(np.float16) for name, array in to_transformers(random_parameters()).items()}
    expected = map_tree(lambda p: p.astype(np.float16).astype(np.float32), random_parameters())
    assert_equal(from_transformers(tensors, CONFIG), expected)


def without(tensors: dict[str, Any]) -> None:
    del tensors["transformer.h.1.mlp.c_fc.bias"]
    del tensors["transformer.wpe.weight"]


def one_block_more(tensors: dict[str, Any]) -> None:
    tensors |= {n.replace("h.1", "h.2"): a for n, a in tensors.items() if "h.1." in n}


def transposed(tensors: dict[str, Any]) -> None:
    tensors["transformer.h.0.mlp.c_fc.weight"] = tensors["transformer.h.0.mlp.c_fc.weight"].T


def whole_numbers(tensors: dict[str, Any]) -> None:
    tensors["transformer.ln_f.bias"] = np.ones(4, np.int32)


def untied(tensors: dict[str, Any]) -> None:
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (without, MissingWeights, r"2 tensors \(.*c_fc.bias, transformer.wpe.weight\) of 28 missing, and GPT2Config"),
        (one_block_more, UnexpectedWeights, r"12 tensors \(transformer.h.2.* and 6 more\) given, and GPT2C"),
        (transposed, MisshapenWeights, r"h.0.mlp.c_fc.weight is float32\[16, 4\]; .* needs floats of shape \[4, 16\]"),
        (whole_numbers, MisshapenWeights, r"transformer.ln_f.bias is int32\[4\]; .* needs floats of shape \[4\]"),
        (untied, UnexpectedWeights, "lm_head.weight differs from transformer.wte.weight; PCP's GPT-2 uses the token embedding"),
    ],
)  # fmt: skip
def test_weights_of_another_model_are_refused(
    change: Callable[[dict[str, Any]], None], error: type[Exception], message: str
) -> None:
    tensors = to_transformers(random_parameters())
    change(tensors)
    with pytest.raises(error, match=message):
        from_transformers(tensors, CONFIG)
