"""The models: of transformers with random weights, and one written by hand, each with its own loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models import images

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """A model and its sizes.

    Arguments:
        about: for people.
        make: the module, whose `forward` takes the batch and returns the loss; of a number of layers, or of the model's own.
        batch_of: the batch, of so many samples, of so many tokens each.
        sizes: samples and tokens, by the kind of device.
        together: whether what one sample gives depends on the others, as behind batch norms in training.
    """

    about: str
    make: Callable[[int | None], Any]
    batch_of: Callable[[int, int], tuple[Array, ...]]
    sizes: dict[str, tuple[int, int]]
    together: bool = False


def _with_loss(model: Any, *names: str, **fixed: Any) -> Any:
    """A module whose arguments have these names in the model, and which returns the loss that the model computes."""
    import torch

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any, y: Any) -> Any:
            return self.model(**dict(zip(names, (x, y), strict=True)), **fixed).loss

    return WithLoss()


def _depth(layers: int | None, name: str = "num_hidden_layers") -> dict[str, int]:
    return {} if layers is None else {name: layers}


def _bert(layers: int | None) -> Any:
    import transformers as hf

    config = hf.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **_depth(layers))
    return _with_loss(hf.BertForMaskedLM(config), "input_ids", "labels")


def _vit(layers: int | None) -> Any:
    import transformers as hf

    config = hf.ViTConfig(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=1000, **_depth(layers)
    )
    return _with_loss(hf.ViTForImageClassification(config), "pixel_values", "labels")


def _qwen2(layers: int | None) -> Any:
    import transformers as hf

    config = hf.Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        **({"num_hidden_layers": 24} | _depth(layers)),
    )
    return _with_loss(hf.Qwen2ForCausalLM(config), "input_ids", "labels", use_cache=False)


def _gpt2_medium(layers: int | None) -> Any:
    import transformers as hf

    config = hf.GPT2Config(
        n_embd=1024,
        n_head=16,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **({"n_layer": 24} | _depth(layers, "n_layer")),
    )
    return _with_loss(hf.GPT2LMHeadModel(config), "input_ids", "labels", use_cache=False)


def _t5(layers: int | None) -> Any:
    import transformers as hf

    depth = {"num_layers": layers or 12, "num_decoder_layers": layers or 12}
    more = {"decoder_start_token_id": 0, "dropout_rate": 0.0}
    config = hf.T5Config(d_model=768, d_ff=3072, num_heads=12, **more, **depth)
    return _with_loss(hf.T5ForConditionalGeneration(config), "input_ids", "labels", use_cache=False)


def _by_hand(layers: int | None) -> Any:
    """GPT-2 124M as a tutorial writes it: explicit attention, whose mask is a buffer, and exact GELU."""
    import torch
    from torch import nn

    vocabulary, longest, width, heads = 50304, 1024, 768, 12

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.register_buffer("mask", torch.tril(torch.ones(longest, longest)))

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                part.view(batch, length, heads, width // heads).transpose(1, 2)
                for part in self.qkv(x).split(width, dim=2)
            )
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
            scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
            mixed = torch.softmax(scores, dim=-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention()
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm_1(x))
            return x + self.mlp(self.norm_2(x))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers or 12))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            for entry in self.parameters():
                if entry.ndim > 1:
                    nn.init.normal_(entry, std=0.02)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
            for block in self.blocks:
                h = block(h)
            logits = self.head(self.norm(h))
            return nn.functional.cross_entropy(logits.view(-1, vocabulary), y.view(-1))

    return Decoder()


def _unet(layers: int | None) -> Any:
    from benchmarks.models.unet import UNet

    return UNet(layers or 2)


def _tokens(vocabulary: int) -> Callable[[int, int], tuple[Array, ...]]:
    def batch(count: int, length: int) -> tuple[Array, ...]:
        rng = np.random.default_rng([11, count, length])
        return tuple(rng.integers(0, vocabulary, (count, length), np.int64) for _ in range(2))

    return batch


def _images(count: int, _: int) -> tuple[Array, ...]:
    rng = np.random.default_rng([12, count])
    images = rng.standard_normal((count, 3, 224, 224), np.float32)
    return images, rng.integers(0, 1000, (count,), np.int64)


def _noise(count: int, pixels: int) -> tuple[Array, ...]:
    rng = np.random.default_rng([13, count, pixels])
    return tuple(rng.standard_normal((count, 3, pixels, pixels), np.float32) for _ in range(2))


def _of_images(make: Callable[[int | None], Any]) -> Callable[[int | None], Any]:
    return lambda layers: _with_loss(make(layers), "pixel_values", "labels")


MODELS = {
    "bert": Model("BERT-base of transformers", _bert, _tokens(30522), {"cuda": (32, 512), "cpu": (2, 256)}),
    "vit": Model("ViT-B/16 of transformers", _vit, _images, {"cuda": (128, 197), "cpu": (4, 197)}),
    "qwen2": Model(
        "Qwen2-0.5B of transformers", _qwen2, _tokens(151936), {"cuda": (8, 1024), "cpu": (1, 256)}
    ),
    "gpt2-medium": Model(
        "GPT-2 medium of transformers", _gpt2_medium, _tokens(50257), {"cuda": (16, 1024), "cpu": (1, 256)}
    ),
    "t5": Model("T5-base of transformers", _t5, _tokens(32128), {"cuda": (16, 512), "cpu": (1, 256)}),
    "by-hand": Model(
        "GPT-2 124M in plain PyTorch, explicit attention",
        _by_hand,
        _tokens(50304),
        {"cuda": (16, 1024), "cpu": (1, 256)},
    ),
    "resnet50": Model(
        "ResNet-50 of transformers, batch norms in training",
        _of_images(images.resnet50),
        _images,
        {"cuda": (128, 224), "cpu": (4, 224)},
        together=True,
    ),
    "convnext": Model(
        "ConvNeXt-T of transformers",
        _of_images(images.convnext),
        _images,
        {"cuda": (64, 224), "cpu": (4, 224)},
    ),
    "swin": Model(
        "Swin-T of transformers", _of_images(images.swin), _images, {"cuda": (64, 224), "cpu": (4, 224)}
    ),
    "mobilenet": Model(
        "MobileNetV2 of transformers, batch norms in training",
        _of_images(images.mobilenet),
        _images,
        {"cuda": (128, 224), "cpu": (4, 224)},
        together=True,
    ),
    "unet": Model("UNet of DDPM in plain PyTorch", _unet, _noise, {"cuda": (32, 64), "cpu": (2, 64)}),
}


def made(name: str, layers: int | None = None) -> Any:
    """The module, with the same random weights in every process."""
    import torch

    torch.manual_seed(0)
    model = MODELS[name]
    return model.make(layers).train(model.together)
