"""Features are asked of the machine, can be hidden, and what is lacking is said."""

import os

import pytest

from pcp.kernels.features import VARIABLE, InvalidFeature, features_of, hidden, is_for, lacking, masked


def test_the_kind_of_a_device_is_a_feature() -> None:
    assert "cpu" in features_of("cpu")
    assert "cuda" in features_of("cuda")
    assert is_for((), "cuda")
    assert is_for(("cpu", "avx2"), "cpu")
    assert not is_for(("cpu", "avx2"), "cuda")


def test_what_is_lacking_is_said() -> None:
    assert lacking(("cpu", "memory:1MiB"), "cpu") == ""
    assert lacking(("cpu", "no_such_unit"), "cpu") == "it needs no_such_unit, which cpu does not have here"
    assert lacking(("memory:9000TiB",), "cpu").startswith("it needs 9000TiB of memory; there are ")
    assert (
        lacking(("library:none",), "cpu")
        == "there is no native library 'none'; there are activations, attention, batch_normalisation, convolution, "
        "cross_entropy, depthwise, dropout, normalisation, optimizers, pooling, products, quantised, steps, temporaries"
    )
    with pytest.raises(
        InvalidFeature, match="'memory:much' is no feature; expected memory:NUMBER and MiB, GiB or TiB"
    ):
        lacking(("memory:much",), "cpu")


def test_features_are_hidden_and_come_back() -> None:
    before = os.environ.get(VARIABLE)
    with masked("cpu"):
        assert "cpu" not in features_of("cpu")
        assert lacking(("cpu",), "cpu") == f"{VARIABLE} hides cpu"
        with masked("avx2"):
            assert {"cpu", "avx2"} <= hidden()
    assert "cpu" in features_of("cpu")
    assert os.environ.get(VARIABLE) == before
