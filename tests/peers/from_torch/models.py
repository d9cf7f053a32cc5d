"""Small models of many architectures, each as a module whose forward returns a scalar loss."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def perceptron() -> Made:
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.LogSoftmax(-1))
    return WithLoss(net, F.nll_loss), (torch.randn(5, 6), torch.randint(0, 3, (5,)))


class WithLoss(nn.Module):
    """A network followed by a function of its output and the target."""

    def __init__(self, net: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(self.net(x), target)


def convolutional() -> Made:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=2, stride=2, bias=False),
        nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    return WithLoss(net, F.cross_entropy), (torch.randn(3, 3, 10, 10), torch.randint(0, 4, (3,)))


def residual() -> Made:
    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
            self.norms = nn.ModuleList(nn.GroupNorm(2, width) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu_(x + self.norms[1](self.second(F.relu(self.norms[0](self.first(x))))))

    net = nn.Sequential(
        nn.Conv2d(3, 4, 7, 2, 3),
        Block(4),
        nn.MaxPool2d(3, 2, 1),
        Block(4),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(3),
    )
    x = torch.randn(2, 3, 16, 16)
    net(x)
    return WithLoss(net, F.cross_entropy), (x, torch.randint(0, 3, (2,)))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embed, self.net, self.head = (
            nn.Embedding(11, 6),
            kind(6, 8, 2, batch_first=True),
            nn.Linear(8, 11),
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.net(self.embed(tokens[:, :-1]))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def unet() -> Made:
    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(2, 4, 3, 2, 1)
            self.middle = nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3, padding=1))
            self.up, self.out = nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(10, 2, 1)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            low = self.middle(self.down(x))
            nearest = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
            return F.mse_loss(self.out(torch.cat([self.up(low), nearest, x], 1)), target)

    return UNet(), (torch.randn(2, 2, 8, 8), torch.randn(2, 2, 8, 8))


def vision_transformer() -> Made:
    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 4, 4)
            self.token = nn.Parameter(torch.randn(1, 1, 16))
            self.places = nn.Parameter(torch.randn(1, 5, 16))
            layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, F.gelu, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 3)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
            return F.cross_entropy(self.head(self.encoder(x)[:, 0]), target)

    return ViT(), (torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2,)))


def transformer() -> Made:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
            return self.net(source, target, tgt_mask=mask, tgt_is_causal=True).square().mean()

    return Translator(), (torch.randn(2, 5, 8), torch.randn(2, 4, 8))


def mixture_of_experts() -> Made:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(8, 4, bias=False)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, 8)) for _ in range(4)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            odds = self.router(x).softmax(-1)
            best, chosen = odds.topk(2, dim=-1)
            weights = torch.zeros_like(odds).scatter(-1, chosen, best / best.sum(-1, keepdim=True))
            mixed = sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
            load = F.one_hot(chosen, 4).sum(1).to(x.dtype).mean(0)
            return mixed.square().mean() + 0.01 * (load * odds.mean(0)).sum()

    return Mixture(), (torch.randn(6, 8),)


def variational() -> Made:
    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = (
                nn.Linear(10, 8),
                nn.Sequential(nn.Linear(4, 12), nn.Softplus(), nn.Linear(12, 10)),
            )

        def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
            mean, log_variance = self.encoder(x).chunk(2, -1)
            made = self.decoder(mean + (0.5 * log_variance).exp() * noise)
            divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
            return (
                F.binary_cross_entropy_with_logits(made, x.sigmoid(), reduction="none").sum(-1) + divergence
            ).mean()

    return VAE(), (torch.randn(3, 10), torch.randn(3, 4))


def diffusion() -> Made:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.linspace(0.99, 0.02, 20).cumprod(0))
            self.time, self.first, self.second = (
                nn.Linear(8, 8),
                nn.Conv1d(2, 8, 3, padding=1),
                nn.Conv1d(8, 2, 3, padding=1),
            )

        def forward(self, x: torch.Tensor, time: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                kept = self.kept[time][:, None, None]
                noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
            waves = torch.exp(-math.log(1e4) * torch.arange(4, dtype=x.dtype) / 4) * time[:, None]
            embedded = self.time(torch.cat([waves.sin(), waves.cos()], -1))
            hidden = F.silu(self.first(noisy) + embedded[:, :, None])
            return F.mse_loss(self.second(hidden), noise)

    return Denoiser(), (torch.randn(3, 2, 9), torch.randint(0, 20, (3,)), torch.randn(3, 2, 9))


def gemma_like() -> Made:
    class Norm(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.scale = nn.Parameter(0.1 * torch.randn(width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.scale)

    def rotary(x: torch.Tensor) -> torch.Tensor:
        length, width = x.shape[-2:]
        turns = torch.arange(length, dtype=x.dtype)[:, None] / 1e4 ** (
            torch.arange(0, width, 2, dtype=x.dtype) / width
        )
        turns = torch.cat([turns, turns], -1)
        first, second = x.chunk(2, -1)
        return x * turns.cos() + torch.cat([-second, first], -1) * turns.sin()

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(Norm(16) for _ in range(2))
            self.q, self.kv, self.o = (nn.Linear(16, n, bias=False) for n in (16, 8, 16))
            self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norms[0](x)
            q = rotary(self.q(y).unflatten(-1, (4, 4)).transpose(1, 2))
            k, v = self.kv(y).unflatten(-1, (2, 1, 4)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, rotary(k), v, is_causal=True, enable_gqa=True)
            x = x + self.o(mixed.transpose(1, 2).flatten(-2))
            y = self.norms[1](x)
            return x + self.down(F.gelu(self.gate(y), approximate="tanh") * self.up(y))

    class Gemma(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.blocks, self.norm = (
                nn.Embedding(13, 16),
                nn.ModuleList(Block() for _ in range(2)),
                Norm(16),
            )
            self.head = nn.Linear(16, 13, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embed(tokens[:, :-1]) * 4
            for block in self.blocks:
                x = block(x)
            logits = 30 * torch.tanh(self.head(self.norm(x)) / 30)
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return Gemma(), (torch.randint(0, 13, (2, 7)),)


def gpt2(layers: int = 2, width: int = 24, vocabulary: int = 31) -> nn.Module:
    """The GPT-2 of transformers with random weights, without dropout."""
    import transformers

    configuration = transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=32, n_embd=width, n_layer=layers, n_head=4, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(configuration)


def gpt2_loss() -> Made:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = gpt2()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=tokens, labels=tokens).loss

    return Loss(), (torch.randint(0, 31, (2, 9)),)


MODELS: dict[str, Callable[[], Any]] = {
    "perceptron": perceptron,
    "convolutional": convolutional,
    "residual": residual,
    "LSTM": lambda: (Recurrent(nn.LSTM), (torch.randint(0, 11, (2, 7)),)),
    "GRU": lambda: (Recurrent(nn.GRU), (torch.randint(0, 11, (2, 7)),)),
    "UNet": unet,
    "ViT": vision_transformer,
    "transformer": transformer,
    "MoE": mixture_of_experts,
    "VAE": variational,
    "diffusion": diffusion,
    "Gemma-like": gemma_like,
    "GPT-2": gpt2_loss,
}
