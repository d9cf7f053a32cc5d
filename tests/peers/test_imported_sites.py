"""Training steps of models that people bring have the sites that they should have: a table of families, for CPU and GPU.

Nothing is compiled: sites are found in programs.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from benchmarks.models import zoo
from tests.peers import imported_networks as networks
from tests.peers.beside_transformers import families
from tests.replay.machine import machine

import pcp
from pcp import kernels
from pcp.planning.paths.preparation import prepared


class Sites(NamedTuple):
    """How many there are in a step, each forward and backward."""

    attention: int = 0
    normalisation: int = 0
    gelu: int = 0
    cross_entropy: int = 0
    softmax: int = 0
    convolution: int = 0


PADDED: dict[str, Sites] = {
    "bert": Sites(2, 6, 3, 1),
    "distilbert": Sites(2, 6, 3, 1),
    "electra": Sites(2, 6, 3, 1),
    "albert": Sites(2, 6, 3, 1),
    "deberta": Sites(2, 6, 3, 1),
    "modernbert": Sites(2, 6, 3, 1),
    "gpt_neo": Sites(2, 5, 2, 1),
    "gptj": Sites(2, 3, 2, 1),
    "opt": Sites(2, 5, 0, 1),
    "falcon": Sites(2, 3, 2, 1),
    "mpt": Sites(2, 5, 2, 1),
    "bloom": Sites(0, 6, 2, 1, 2),  # two numbers are added to a score: a distance, and one that hides
    "mistral": Sites(2, 5, 2, 1),
    "qwen3": Sites(2, 9, 2, 1),
    "gemma2": Sites(2, 9, 2, 1),
    "gemma3": Sites(2, 13, 2, 1),
    "phi3": Sites(2, 5, 2, 1),
    "olmoe": Sites(2, 9, 2, 1, 2),  # and of the experts
    "gpt_oss": Sites(0, 5, 2, 1, 4),  # scores have a column of their own that no value has
    "t5": Sites(6, 12, 0, 1),
    "bart": Sites(6, 12, 4, 1),
}
"""Families of transformers, two layers each, whose first sequence ends in padding."""
OTHERS: dict[str, tuple[Callable[[], networks.Made], Sites]] = {
    "Whisper": (families.OTHERS["whisper"], Sites(6, 12, 6, 1, convolution=5)),
    "CLIP": (families.OTHERS["clip"], Sites(4, 11, 4)),
    "Swin": (networks.swin, Sites(4, 11, 4, 1)),
    "ConvNeXt": (networks.convnext, Sites(0, 7, 4, 1, convolution=12)),
    "SegFormer": (networks.segformer, Sites(2, 9, 2, 1, convolution=11)),
    "the UNet of DDPM": (networks.ddpm, Sites(1, 6, 7, convolution=20)),
    "a block of DiT": (networks.dit, Sites(1, 2, 2)),
}
"""Models of images."""


def padded(family: str) -> networks.Made:
    loss, (text, labels) = families.made(family)
    loss.names.append("attention_mask")
    mask = torch.ones_like(text)
    mask[0, -3:] = 0
    return loss, (text, labels, mask)


def _sites(made: networks.Made, device: str) -> list[kernels.Site]:
    """Sites of a training step that no other holds, with kernels or without."""
    model, inputs = made
    program = pcp.from_torch(model.eval(), *inputs).program
    step: Any = prepared(pcp.training_step(program, pcp.optimizers.sgd(0.1)))
    with machine():
        return [site for site in kernels.sites_of(step, device, builds=False, bare=True) if not site.inside]


def _found(made: networks.Made) -> dict[str, Counter[str]]:
    """How many sites there are with a kernel, by device; `some` has those without one, too."""
    sites = {device: _sites(made, device) for device in ("cpu", "cuda")}
    found = {device: Counter(site.family for site in of if site.kernels) for device, of in sites.items()}
    attention = [site for site in sites["cuda"] if site.family in ("attention", "attention_gradient")]
    for site in attention:  # and one that keeps no scores
        assert any("cudnn" in name or "triton" in name for name in site.kernels), site.location
    return found | {"some": Counter(site.family for site in sites["cuda"])}


def _check(made: networks.Made, expected: Sites) -> None:
    found = _found(made)
    assert Sites(*(found["some"][kind] for kind in Sites._fields)) == expected
    for kind in ("attention", "normalisation", "cross_entropy", "softmax"):
        count = getattr(expected, kind)
        assert found["some"][f"{kind}_gradient"] == count, kind
        for device in ("cpu", "cuda"):
            assert found[device][kind] == count, (device, kind)
        assert found["cuda"][f"{kind}_gradient"] == count, kind
    assert found["cuda"]["convolution"] == expected.convolution


@pytest.mark.share(3)
@pytest.mark.parametrize("family", PADDED)
def test_a_padded_step_of_a_family_has_its_sites(family: str) -> None:
    _check(padded(family), PADDED[family])


@pytest.mark.parametrize("name", OTHERS)
def test_a_step_of_images_has_its_sites(name: str) -> None:
    made, expected = OTHERS[name]
    _check(made(), expected)


def test_a_step_with_explicit_attention_whose_mask_is_a_buffer_and_exact_gelu_has_those_of_bert() -> None:
    text = torch.randint(0, 50304, (2, 16))
    by_hand = zoo.made("by-hand", 1), (text, text)
    _check(by_hand, Sites(1, 3, 1, 1))
    found = _found(by_hand)["cuda"]
    assert (found["gelu"], found["gelu_gradient"]) == (1, 1)


def test_the_relative_positions_of_t5_are_one_bias_of_all_samples_whose_cotangent_a_kernel_adds_up() -> None:
    sites = [site for site in _sites(families.made("t5"), "cuda") if site.family.startswith("attention")]
    assert len(sites) == 12
    biased = [site for site in sites if len(site.region.arguments) > (3 if site.family == "attention" else 4)]
    assert len(biased) == 8  # all but those of the decoder at the encoder
    for site in biased:
        query, bias = (site.region.arguments[place].spec for place in (0, 3))
        assert bias.size * query.shape[0] == query.size // query.shape[-1] * query.shape[2]
        assert f"{site.family}.triton:bf16+result" in site.kernels


def test_a_network_of_pytorch_in_training_has_the_kernels_of_images_with_their_channels_last() -> None:
    block = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
        torch.nn.Conv2d(16, 16, 5, padding=2, groups=16), torch.nn.BatchNorm2d(16), torch.nn.Hardswish(),
        torch.nn.Conv2d(16, 18, 3, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    )  # fmt: skip
    loss = torch.nn.CrossEntropyLoss()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return loss(self.block(x), y)

    program = pcp.from_torch(Network().train(), torch.randn(2, 3, 16, 16), torch.tensor([3, 17])).program
    with machine():
        sites = kernels.sites_of(
            prepared(pcp.training_step(program, pcp.optimizers.sgd(0.1))), "cpu", builds=False
        )
    found = Counter(name for site in sites for name in site.kernels)
    expected = {
        "batch_normalisation.native": 2, "batch_normalisation_gradient.native": 2, "max_pool_gradient.native": 1,
        "convolution.native_depthwise": 3, "convolution.native": 3,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
