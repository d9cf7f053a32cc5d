"""Symbolic sizes from PyTorch: of specs, and of `torch.export` with dynamic shapes, against PyTorch on random inputs."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import pcp
from pcp.symbolic import SizesRefused, SymbolicProgram


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor, *, memory: torch.Tensor) -> dict[str, torch.Tensor]:
        attended, _ = self.attention(x, memory, memory, need_weights=False)
        return {"y": self.norm(x + attended), "mean": memory.mean() * x.shape[1]}


def compare(imported: Any, sizes: dict[str, int], batch: int, length: int) -> None:
    rng = np.random.default_rng()
    x = rng.normal(size=(batch, length, 16)).astype(np.float32)
    memory = rng.normal(size=(batch, 2 * length, 16)).astype(np.float32)
    expected = MODULE(torch.from_numpy(x), memory=torch.from_numpy(memory))
    got = pcp.plan(imported.program.at(**sizes), "arena:cpu").run(imported.weights, x, memory)
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(got[name]), value.detach().numpy(), rtol=1e-3, atol=1e-4)


MODULE = Block().eval()


def test_specs_with_symbols() -> None:
    x, memory = pcp.spec(("batch", "length", 16), "f32"), pcp.spec(("batch", "2*length", 16), "f32")
    imported: Any = pcp.from_torch(MODULE, x, keywords={"memory": memory}, constraints=["length <= 200"])
    assert isinstance(imported.program, SymbolicProgram)
    assert [str(entry.spec) for entry in imported.program.results] == ["f32[]", "f32[batch,length,16]"]
    rng = np.random.default_rng()
    for batch, length in rng.integers(2, 30, (2, 2)).tolist():
        compare(imported, {"batch": batch, "length": length}, batch, length)
    with pytest.raises(SizesRefused, match="expected length <= 200"):
        imported.program.at(batch=2, length=201)


def test_an_export_with_dynamic_shapes() -> None:
    batch, length = Dim("batch", min=2, max=64), Dim("length", min=3, max=100)
    exported = torch.export.export(
        MODULE,
        (torch.zeros(4, 6, 16),),
        {"memory": torch.zeros(4, 12, 16)},
        dynamic_shapes={"x": {0: batch, 1: length}, "memory": {0: batch, 1: 2 * length}},
    )
    imported: Any = pcp.from_torch(exported)
    first, second = imported.program.symbols
    assert str(imported.program.arguments[-2].spec) == f"f32[{first},{second},16]"
    assert f"{second} <= 100" in imported.program.constraints
    compare(imported, {first: 5, second: 7}, 5, 7)
