"""Tiny models of transformers, and of PyTorch by hand, by the ways in which they write attention."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
B, N, WORDS = 2, 16, 96
HEADS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class WithLabels(nn.Module):
    """The loss of a model of transformers.

    Arguments:
        model: the model.
        name: of what it takes besides the labels; then, if there is one, a mask of what is no padding.
    """

    def __init__(self, model: nn.Module, name: str = "input_ids") -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(
        self, x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        more = {} if mask is None else {"attention_mask": mask}
        return self.model(**{self.name: x}, labels=labels, **more).loss


def of_words(model: Any, padding: str = "") -> Made:
    """A model of language, and a batch in which the first sequence is padded on a side, if any."""
    batch = tuple(torch.randint(0, WORDS, (B, N)) for _ in range(2))
    mask = torch.ones(B, N, dtype=torch.long)
    mask[0, slice(N - 5, N) if padding == "right" else slice(5)] = 0
    return WithLabels(model), (*batch, mask) if padding else batch


def bert(padding: str = "", **more: Any) -> Made:
    config = transformers.BertConfig(
        vocab_size=WORDS, max_position_embeddings=32, **HEADS, **NO_DROPOUT, **more
    )
    return of_words(transformers.BertForMaskedLM(config), padding)


def vit() -> Made:
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=10, **HEADS, **NO_DROPOUT)
    images = torch.randn(B, 3, 32, 32), torch.randint(0, 10, (B,))
    return WithLabels(transformers.ViTForImageClassification(config), "pixel_values"), images


def llama(kind: str = "Llama", padding: str = "", **more: Any) -> Made:
    """Llama, Qwen2 and Mistral, whose heads share keys in pairs."""
    config = getattr(transformers, f"{kind}Config")(vocab_size=WORDS, num_key_value_heads=2, **HEADS, **more)
    return of_words(getattr(transformers, f"{kind}ForCausalLM")(config), padding)


def gpt2(padding: str = "", **more: Any) -> Made:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **more
    )  # fmt: skip
    return of_words(transformers.GPT2LMHeadModel(config), padding)


def t5() -> Made:
    config = transformers.T5Config(
        vocab_size=WORDS,
        d_model=32,
        num_layers=2,
        num_heads=4,
        d_kv=8,
        d_ff=64,
        dropout_rate=0,
        decoder_start_token_id=0,
    )
    return of_words(transformers.T5ForConditionalGeneration(config))


def whisper() -> Made:
    config = transformers.WhisperConfig(
        vocab_size=WORDS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=16,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, dropout=0.0,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    return WithLabels(model, "input_features"), (torch.randn(B, 8, 32), torch.randint(3, WORDS, (B, 10)))


class Attention(nn.Module):
    """Self-attention by hand.

    Arguments:
        form: takes query, key and value (batch, heads, length, width), and the triangle of ones.
    """

    def __init__(self, form: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.form, self.qkv, self.out = form, nn.Linear(32, 96), nn.Linear(32, 32)
        self.register_buffer("triangle", torch.tril(torch.ones(N, N)).view(1, 1, N, N))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        q, k, v = (e.view(B, N, 4, 8).transpose(1, 2) for e in self.qkv(x).split(32, dim=2))
        y = self.form(q, k, v, self.triangle).transpose(1, 2).reshape(B, N, 32)
        return F.mse_loss(self.out(y), target)


def by_hand(form: Callable[..., torch.Tensor]) -> Made:
    return Attention(form), (torch.randn(B, N, 32), torch.randn(B, N, 32))


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked_fill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, triangle: torch.Tensor) -> torch.Tensor:
    """As nanoGPT writes it: the mask is a buffer."""
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    return F.softmax(scores.masked_fill(triangle == 0, -math.inf), dim=-1) @ v


def own_triangle(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return masked_fill(q, k, v, torch.tril(torch.ones(N, N)))


def einsum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(8)
    hidden = torch.ones(N, N, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, -1e9).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v).transpose(1, 2)


def joined(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """As fairseq: batch and heads are one axis but for the mask."""
    q, k, v = (x.reshape(B * 4, N, 8) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, 4, N, N) + torch.full((N, N), -math.inf).triu(1)
    weights = F.softmax(scores.view(B * 4, N, N), dim=-1)
    return torch.bmm(weights, v).view(B, 4, N, 8)


def channels_first(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """As the UNet of DDPM: pixels are last."""
    q, k, v = (x.transpose(2, 3).reshape(B * 4, 8, N) for x in (q, k, v))
    weights = F.softmax(torch.bmm(q.permute(0, 2, 1), k) * 8**-0.5, dim=2)
    return torch.bmm(v, weights.permute(0, 2, 1)).view(B, 4, 8, N).transpose(2, 3)


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k[:, ::2], v[:, ::2], is_causal=True, enable_gqa=True)


def encoder(mask: str) -> Made:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            own = {} if mask != "causal" else {"src_mask": nn.Transformer.generate_square_subsequent_mask(N)}
            own |= {} if mask != "padding" else {"src_key_padding_mask": target[..., 0] > 1}
            return F.mse_loss(self.layer(x, **own), target)

    return Encoder(), (torch.randn(B, N, 32), torch.randn(B, N, 32))
