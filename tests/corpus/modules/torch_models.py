"""Small networks of PyTorch with their losses: those of the importer's own tests, and more."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.corpus.arguments import normal, uniform
from tests.corpus.case import Case
from tests.peers.from_torch.models import MODELS


def _known(name: str) -> Case:
    def inputs(_: Any) -> tuple[Any, ...]:
        torch.manual_seed(1)
        made = MODELS[name]()[1]
        return tuple((x.double() if x.is_floating_point() else x).numpy() for x in made)

    plain = name.lower().replace("-", "_")
    if name == "GPT-2":
        note = "transformers computes the loss in float32"
        return Case(plain, lambda: MODELS[name]()[0], inputs, tolerance=1e-4, note=note)
    return Case(plain, lambda: MODELS[name]()[0], inputs)


class Mixer(nn.Module):
    """Perceptrons over tokens and over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 5))
        self.channels = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, 5, 8)."""
        x = x + self.tokens(self.norms[0](x).mT).mT
        return x + self.channels(self.norms[1](x))


class Coupling(nn.Module):
    """A coupling layer of a flow: the log density of points."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, 4)."""
        a, b = x.chunk(2, -1)
        shift, scale = self.net(a).chunk(2, -1)
        made = torch.cat([a, b * scale.tanh().exp() + shift], -1)
        return -made.square().sum(-1) / 2 + scale.tanh().sum(-1)


class Selective(nn.Module):
    """A selective state space model, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.rate, self.read, self.write = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 3)
        self.decay = nn.Parameter(torch.rand(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, time, 4)."""
        rate = F.softplus(self.rate(x))
        state, found = torch.zeros(x.shape[0], 4, 3, dtype=x.dtype), []
        for t in range(x.shape[1]):
            kept = torch.exp(-rate[:, t, :, None] * self.decay.exp())
            state = state * kept + (rate[:, t] * x[:, t])[..., None] * self.write(x[:, t])[:, None]
            found.append((state * self.read(x[:, t])[:, None]).sum(-1))
        return torch.stack(found, 1)


class ConvNeXt(nn.Module):
    """A block with a depthwise convolution and a norm over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.LayerNorm(4)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, 4, height, width)."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class Wave(nn.Module):
    """Gated, dilated, causal convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(3, 6, 2, dilation=2**i) for i in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, 3, time)."""
        for i, layer in enumerate(self.layers):
            value, gate = layer(F.pad(x, (2**i, 0))).chunk(2, 1)
            x = x + value.tanh() * gate.sigmoid()
        return x


class Adversary(nn.Module):
    """A generator and a critic, and the loss of both."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 6), nn.SiLU(), nn.Linear(6, 3))
        self.critic = nn.Sequential(nn.Linear(3, 6), nn.SiLU(), nn.Linear(6, 1))

    def forward(self, noise: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Of (batch, 2) and (batch, 3)."""
        return (F.softplus(-self.critic(real)) + F.softplus(self.critic(self.generator(noise)))).mean()


def _autoencoder() -> nn.Module:
    encoder = [nn.Conv2d(1, 4, 3, 2, 1), nn.SiLU(), nn.Conv2d(4, 6, 3, 2, 1)]
    decoder = [nn.ConvTranspose2d(6, 4, 2, 2), nn.SiLU(), nn.ConvTranspose2d(4, 1, 2, 2), nn.Sigmoid()]
    return nn.Sequential(*encoder, *decoder)


CASES = [
    *(_known(name) for name in MODELS),
    Case("mixer", Mixer, normal((2, 5, 8)), order=2),
    Case("coupling_flow", Coupling, normal((5, 4)), order=2),
    Case("selective_state_space", Selective, normal((2, 5, 4))),
    Case("convnext_block", ConvNeXt, normal((2, 4, 5, 5)), order=2),
    Case("wavenet", Wave, normal((2, 3, 8)), order=2),
    Case("adversarial_networks", Adversary, normal((4, 2), (4, 3)), order=2),
    Case("autoencoder", _autoencoder, uniform(0, 1, (2, 1, 8, 8))),
]
