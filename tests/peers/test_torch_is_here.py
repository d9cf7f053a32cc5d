"""The peers that parity is measured against are the ones that were locked, and come without CUDA."""

from importlib.metadata import distributions

import numpy as np
import torch
import transformers


def test_torch_is_the_cpu_build_of_the_pinned_version() -> None:
    assert torch.__version__.split("+")[0] == "2.13.0"
    assert torch.version.cuda is None


def test_no_cuda_library_was_installed() -> None:
    names = [distribution.metadata["Name"].lower() for distribution in distributions()]
    assert "torch" in names
    assert [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))] == []


def test_transformers_runs_a_torch_model() -> None:
    configuration = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=12, n_layer=1, n_head=3)
    tokens = np.random.default_rng(0).integers(0, 11, (2, 8))
    with torch.no_grad():
        logits = transformers.GPT2LMHeadModel(configuration).eval()(torch.from_numpy(tokens)).logits
    assert logits.shape == (2, 8, 11)
    assert bool(torch.isfinite(logits).all())
