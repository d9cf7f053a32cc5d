"""Published names and ours, one for one, and weights that are not the model's."""

from typing import Any

import numpy as np
import pytest

from pcp.ir.tree import flatten
from pcp.models.gpt2 import GPT2Config, initial_parameters
from pcp.models.gpt2_weights import WeightsMismatch, named_weights, parameters_from, published_name

CONFIG = GPT2Config(layers=11, heads=2, width=4, context=6, vocabulary=9)
BARE = GPT2Config(layers=1, heads=2, width=4, context=6, vocabulary=9, bias=False)


def weights(config: GPT2Config = CONFIG) -> dict[str, Any]:
    return named_weights(initial_parameters(config, 3))


def test_every_parameter_has_one_published_name() -> None:
    names = flatten(initial_parameters(CONFIG))[1].names()
    found = [published_name(name) for name in names]
    assert len(set(found)) == len(names) == 4 + 11 * 12
    assert published_name("blocks.10.attn.qkv.bias") == "h.10.attn.c_attn.bias"
    assert published_name("wte") == "wte.weight"
    assert next(iter(weights())).startswith("transformer.h.0.")


@pytest.mark.parametrize("config", [CONFIG, BARE], ids=["with biases", "without"])
@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_there_and_back(config: GPT2Config, prefix: str) -> None:
    given = {name.replace("transformer.", prefix): array for name, array in weights(config).items()}
    found, tree = flatten(parameters_from(given, config))
    expected, wanted = flatten(initial_parameters(config, 3))
    assert tree == wanted
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_masks_and_the_tied_projection_are_no_weights() -> None:
    given = weights()
    given["lm_head.weight"] = given["transformer.wte.weight"]
    given["transformer.h.3.attn.bias"] = np.tril(np.ones((1, 1, 6, 6), np.uint8))
    given["transformer.h.3.attn.masked_bias"] = np.float32(-1e4)
    parameters_from(given, CONFIG)


def test_weights_are_converted() -> None:
    given = {name: array.astype(np.float16) for name, array in weights().items()}
    leaves = flatten(parameters_from(given, CONFIG, "f64"))[0]
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float64)}


def changed(**changes: Any) -> dict[str, Any]:
    """The weights with some replaced, or left out where the value is None."""
    made = weights() | {f"transformer.{name.replace('__', '.')}": value for name, value in changes.items()}
    return {name: value for name, value in made.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"h__2__ln_1__bias": None}, r"weights of GPT2Config\(layers=11.*: h.2.ln_1.bias is missing$"),
        ({"h__11__ln_1__bias": np.ones(4)}, "h.11.ln_1.bias is too many$"),
        ({"wpe__weight": None, "wpe": np.ones(4)}, "wpe.weight is missing; wpe is too many$"),
        (
            {"h__0__mlp__c_fc__weight": np.ones((16, 4), np.float32)},
            r"weight h.0.mlp.c_fc.weight has shape \(16, 4\); GPT2Config\(.* expects \(4, 16\)",
        ),
        ({"ln_f__bias": np.ones(4, np.int64)}, "weight ln_f.bias has element type int64; expected floating"),
    ],
)
def test_weights_of_another_model(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsMismatch, match=message):
        parameters_from(changed(**changes), CONFIG)


def test_a_long_list_is_cut() -> None:
    deep = {name: array for name, array in weights().items() if ".h.10." not in name}
    with pytest.raises(WeightsMismatch, match=r"h.10.attn.c_attn.bias, .* and 8 more are missing"):
        parameters_from(deep, CONFIG)


def test_an_output_projection_of_its_own() -> None:
    given = weights() | {"lm_head.weight": np.ones((9, 4), np.float32)}
    with pytest.raises(WeightsMismatch, match=r"lm_head\.weight differs from wte\.weight"):
        parameters_from(given, CONFIG)


def test_biases_for_a_model_without() -> None:
    with pytest.raises(WeightsMismatch, match=r"bias=False.*h.0.attn.c_attn.bias, .* are too many"):
        parameters_from(named_weights(initial_parameters(GPT2Config(1, 2, 4, 6, 9))), BARE)
