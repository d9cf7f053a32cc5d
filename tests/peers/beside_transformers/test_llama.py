"""Llama beside `transformers`: logits, loss, every gradient and text, with the same weights."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tests.execution import run

import pcp
from pcp.cli import main
from pcp.importers.weights import map_weights
from pcp.inference import Sampling, TextModel
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.names import from_transformers, to_transformers
from pcp.models.published import llama_config

UNTIED = llama_config(3, heads=4, key_value_heads=2, width=32, hidden=44, context=48, vocabulary=61)
TIED = llama_config(2, 4, 4, 32, 40, 48, 61, tied=True, rotary_base=500.0, epsilon=1e-3)
EACH = pytest.mark.parametrize("config", [UNTIED, TIED], ids=["untied", "tied"])


def peer(config: DecoderConfig, seed: int) -> Any:
    """A Llama of PyTorch in which no parameter is one, so that no term of a gradient can hide."""
    torch.manual_seed(seed)
    settings = transformers.LlamaConfig(
        vocab_size=config.vocabulary,
        max_position_embeddings=config.context,
        hidden_size=config.width,
        intermediate_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.key_value_heads,
        rms_norm_eps=config.epsilon,
        tie_word_embeddings=config.tied,
        rope_parameters={"rope_type": "default", "rope_theta": config.rotary.base},
    )
    model = transformers.LlamaForCausalLM(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def weights_of(model: Any, config: DecoderConfig) -> Any:
    return from_transformers({n: p.detach().numpy().copy() for n, p in model.state_dict().items()}, config)


def distance(ours: Any, theirs: Any) -> float:
    return float(np.linalg.norm(np.asarray(ours) - theirs) / np.linalg.norm(theirs))


# transformers computes norms and the angles of rotary positions in float32, whatever type the model has.
@EACH
@pytest.mark.parametrize(("dtype", "near"), [("float32", 3e-6), ("float64", 1e-6)])
def test_loss_and_every_gradient_are_equal(config: DecoderConfig, dtype: str, near: float) -> None:
    model = peer(config, 1)
    parameters = map_tree(lambda p: p.astype(dtype), weights_of(model, config))
    model = model.to(getattr(torch, dtype))
    windows = np.random.default_rng(1).integers(0, config.vocabulary, (4, 17), np.int32)
    batch = windows[:, :-1].copy(), windows[:, 1:].copy()
    with jax.enable_x64(True):
        loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), pcp.specs_of(parameters), *batch)
        value, gradients = run(pcp.value_and_grad(loss), parameters, *batch)
    tokens, targets = (torch.from_numpy(part).long() for part in batch)
    logits = model(tokens).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    expected.backward()
    assert float(value) == pytest.approx(expected.item(), rel=near)
    ours = to_transformers(gradients, config)
    theirs = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        assert gradient.dtype == dtype
        assert distance(gradient, theirs[name]) < near, name


@EACH
def test_a_saved_model_continues_as_transformers_does(
    config: DecoderConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = peer(config, 2).eval()
    model.save_pretrained(tmp_path)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(61)}, "w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path)
    prompt = np.random.default_rng(3).integers(0, config.vocabulary, 20).tolist()
    whole = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, 20), dtype=torch.long),
        max_new_tokens=28,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    expected: list[int] = whole[0, 20:].tolist()
    assert len(set(expected)) > 1
    parameters = from_transformers(map_weights(tmp_path), config)
    for a, b in zip(flatten(parameters)[0], flatten(weights_of(model, config))[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert pcp.generate(TextModel(parameters, config), prompt, 28, Sampling(temperature=0)) == expected
    text = " ".join(f"w{token}" for token in prompt)
    arguments = ["--prompt", text, "--tokens", "28", "--temperature", "0", "--ignore-end", "--json"]
    assert main(["generate", str(tmp_path), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "".join(f" w{token}" for token in expected)
