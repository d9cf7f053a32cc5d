"""Texts of modules of PyTorch: known families by their weights, any other decoder by its program, beside PyTorch's own."""

from typing import Any

import pytest

import pcp
from pcp.importers.text_module import DiffersFromTorch, text_module
from pcp.inference import Sampling
from pcp.inference.by_program.axes import NotADecoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 90, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
OTHERS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
FAMILIES = {
    "Llama": SIZES | OTHERS | {"intermediate_size": 24},  # a row of PCP's
    "OPT": SIZES | OTHERS | {"ffn_dim": 24, "max_position_embeddings": 64, "word_embed_proj_dim": 16},
    "Bloom": {"vocab_size": 90, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    "GPTJ": {"vocab_size": 90, "n_embd": 16, "n_layer": 2, "n_head": 2, "rotary_dim": 4, "n_positions": 64},
    "Falcon": SIZES,
    "StableLm": SIZES | OTHERS | {"intermediate_size": 24, "num_key_value_heads": 1},
    "Cohere": SIZES | OTHERS | {"intermediate_size": 24, "num_key_value_heads": 1},
    "Mpt": {"vocab_size": 90, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_seq_len": 64},
}
PROMPTS = [[5, 6, 7], [*range(3, 15)], [9] * 18]


class Written(torch.nn.Module):
    """A decoder as one writes it: attention by a product with a triangle, scores of the last place and a loss that is none."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(90, 16), torch.nn.Embedding(64, 16)
        self.qkv, self.head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 90)
        self.drop, self.causal = torch.nn.Dropout(0.5), causal
        self.register_buffer("triangle", torch.tril(torch.ones(64, 64)))

    def forward(self, tokens: Any) -> Any:
        rows, count = tokens.shape
        x = self.drop(self.words(tokens) + self.places(torch.arange(count)))
        query, key, value = (each.view(rows, count, 2, 8) for each in self.qkv(x).split(16, -1))
        shares = torch.einsum("bqhd,bkhd->bhqk", query, key) / 8**0.5
        if self.causal:
            shares = shares.masked_fill(self.triangle[:count, :count] == 0, float("-inf"))
        mixed = torch.einsum("bhqk,bkhd->bqhd", shares.softmax(-1), value).reshape(rows, count, 16)
        return self.head((x + mixed)[:, [-1], :]), None


def random(module: Any) -> Any:
    """With weights so large that no two scores are nearly equal."""
    torch.manual_seed(3)
    for each in module.parameters():
        if each.dim() > 1:
            torch.nn.init.normal_(each, 0, 0.4)
    return module


def by_torch(module: Any, prompt: list[int], count: int) -> list[int]:
    text = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            returned = module(torch.tensor([text]))
            scores = returned[0] if isinstance(returned, tuple) else returned.logits
            text.append(int(scores.reshape(-1, scores.shape[-1])[-1].argmax()))
    return text[len(prompt) :]


@pytest.mark.share(3, each="family")
@pytest.mark.parametrize("family", [*FAMILIES, "written"])
def test_a_module_goes_on_as_in_pytorch(family: str) -> None:
    if family == "written":
        module = Written()
    else:
        config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
        module = getattr(transformers, f"{family}ForCausalLM")(config)
    random(module).train()
    found = pcp.generate(module, PROMPTS, 8, Sampling(0), ignore_end=True)
    assert module.training
    module.eval()
    assert found == [by_torch(module, prompt, 8) for prompt in PROMPTS]


def test_a_module_that_looks_ahead_is_refused() -> None:
    with pytest.raises(DiffersFromTorch, match="Scores of such a model depend on tokens that come later"):
        text_module(random(Written(causal=False)), 32)


def test_a_module_of_something_else_is_refused() -> None:
    with pytest.raises(NotADecoder, match="joins places with something else"):
        text_module(torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Flatten()), 32)
