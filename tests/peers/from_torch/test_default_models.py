"""Models of transformers as their configurations make them: with a cache, an object of results, and dropout in training."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from tests.execution import run

import pcp
from pcp.importers.torch.exporting import CannotExport
from pcp.importers.torch.imported import NoSuchResult, TwiceGiven
from pcp.importers.torch.interpreting import RandomWithoutSeed
from pcp.training.step import NotALoss

SETTINGS = {"vocab_size": 43, "n_embd": 16, "n_layer": 1, "n_head": 4, "n_positions": 32}


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    configuration = transformers.GPT2Config(**SETTINGS)
    assert configuration.use_cache  # the default that is meant here
    return transformers.AutoModelForCausalLM.from_config(configuration)


def test_it_is_called_as_the_model_is_and_returns_no_cache(model: Any) -> None:
    text = torch.randint(0, 43, (2, 9))
    imported = pcp.from_torch(model.eval(), input_ids=text, labels=text)
    found = run(imported.program, imported.weights, text.numpy(), text.numpy())
    expected = model(input_ids=text, labels=text)
    assert sorted(found) == ["logits", "loss"]  # `past_key_values` is not there
    for name in found:
        np.testing.assert_allclose(found[name], expected[name].detach().numpy(), rtol=1e-4, atol=1e-5)
    assert model.config.use_cache  # as before
    with pytest.raises(NotALoss, match=r"take the loss alone: pcp.from_torch\(..., output='loss'\)"):
        pcp.training_step(imported.program, pcp.optimizers.adamw(1e-3))


def test_dropout_of_a_model_in_training_needs_a_seed_and_trains(model: Any) -> None:
    """`from_config` leaves a model in `train()`, where attention drops weights as well."""
    text = np.random.default_rng(0).integers(0, 43, (2, 9))
    with pytest.raises(RandomWithoutSeed, match=r"scaled_dot_product_attention.default(.*\n)*.*a seed"):
        pcp.from_torch(model.train(), input_ids=text)
    imported = pcp.from_torch(model, input_ids=text, labels=text, output="loss", seed=3)
    step = pcp.training_step(imported.program, pcp.optimizers.adamw(1e-2))
    plan, state = pcp.plan(step), step.initial_state(imported.weights, imported.buffers)
    losses = []
    for _ in range(30):
        state, metrics = plan.run(state, (text, text))
        losses.append(float(metrics["loss"]))
    assert np.mean(losses[-5:]) < 0.8 * losses[0]


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_dropout_of_attention_drops_weights_and_scales_the_others(rate: float) -> None:
    """Where values are the identity, the result is the weights."""
    q, k = torch.randn(2, 3, 24, 8), torch.randn(2, 3, 24, 8)
    values = torch.eye(24).expand(2, 3, 24, 24)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)

    imported = pcp.from_torch(attention, q, k, values, seed=0)
    arrays = [x.numpy() for x in (q, k, values)]
    after, found = run(imported.program, {}, imported.buffers, *arrays)
    _, again = run(imported.program, {}, after, *arrays)
    whole = F.scaled_dot_product_attention(q, k, values, is_causal=True).numpy()
    if rate == 1:
        assert not found.any()
        return
    kept = found != 0
    np.testing.assert_allclose(found[kept], whole[kept] / (1 - rate), rtol=1e-5)
    seen = whole != 0
    assert abs(kept[seen].mean() - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / seen.sum())
    assert not np.array_equal(kept, again != 0)


def test_what_is_called_wrongly_is_told_with_what_was_given(model: Any) -> None:
    text = torch.randint(0, 43, (2, 9))
    model = model.eval()
    with pytest.raises(
        CannotExport, match=r"raises this itself where it is called with \(\); give .*input_ids"
    ):
        pcp.from_torch(model)
    with pytest.raises(CannotExport, match=r"called with \(input_idss=int64\[2, 9\]\)"):
        pcp.from_torch(model, input_idss=text)
    with pytest.raises(CannotExport, match=r"leave use_cache out"):
        pcp.from_torch(model, input_ids=text, use_cache=True)
    with pytest.raises(TwiceGiven, match="input_ids stands in keywords= and beside it"):
        pcp.from_torch(model, input_ids=text, keywords={"input_ids": text})
    with pytest.raises(
        NoSuchResult, match=r"'loss', but the module returns logits; .* where it is given labels"
    ):
        pcp.from_torch(model, input_ids=text, output="loss")
