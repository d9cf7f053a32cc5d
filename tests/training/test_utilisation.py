"""The peak that model FLOP utilisation is relative to: by data sheet where a GPU is known, else measured; GPT-2's FLOPs."""

import pytest

import pcp
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.planning.measuring.hardware import Hardware
from pcp.training import utilisation
from pcp.training.utilisation import model_flops, peak_of


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
    ],
)
def test_known_gpus(name: str, tera: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilisation, "hardware_of", lambda _: Hardware(name, ""))
    found = peak_of.__wrapped__("cpu:0")
    assert found.flops_per_second == tera * 1e12
    assert found.source.startswith("dense bfloat16 by the data sheet of the ")


def test_another_device_is_measured() -> None:
    found = peak_of("cpu:0")
    assert found.flops_per_second > 1e8
    assert found.source.startswith("a product of 1024 x 1024 matrices of ")


def test_a_decoder_takes_what_the_formula_of_palm_says() -> None:
    config = gpt2_config(layers=3, heads=2, width=16, context=8, vocabulary=40)
    tokens = pcp.spec((2, 8), "i32")
    loss = pcp.trace(
        lambda p, x, y: decoder.loss(p, x, y, config), decoder.parameter_shapes(config), tokens, tokens
    )
    weights = 40 * 16 + 3 * 12 * 16 * 16  # of products: the head and the blocks
    assert model_flops(loss) == 2 * 8 * (6 * weights + 12 * 3 * 16 * 8)
