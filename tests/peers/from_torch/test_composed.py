"""Operations that PyTorch composes of rows: kept whole they are what it decomposes them into."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as f

import pcp
from pcp.importers.torch import exporting
from pcp.importers.torch.table import TABLE

X = pcp.spec((4, 6, 5, 5), "f32")
CASES: dict[str, Callable[[Any], Any]] = {
    "contiguous.default": lambda t: t.x.transpose(-1, -2).contiguous() + 1,
    "to.device": lambda t: t.x.to("cpu", torch.float32) + 1,
    "to.dtype": lambda t: t.x.to(torch.float64) * t.x.to(torch.bfloat16),
    "to.dtype_layout": lambda t: t.x.to(dtype=torch.float64, device="cpu"),
    "type_as.default": lambda t: t.lot.type_as(t.x),
    "reshape.default": lambda t: t.x.transpose(-1, -2).reshape(4, -1, 3).sum(-1),
    "flatten.using_ints": lambda t: t.x.flatten(1, 2).sum(1),
    "expand_as.default": lambda t: t.x[:1].expand_as(t.x) * t.x,
    "__and__.Scalar": lambda t: t.lot & 3,
    "__and__.Tensor": lambda t: (t.lot & t.lot[:1]) + ((t.x > 0) & (t.x < 1)).sum(),
    "__or__.Scalar": lambda t: t.lot | 3,
    "__or__.Tensor": lambda t: (t.lot | t.lot[:1]) + ((t.x > 0) | (t.x < -1)).sum(),
    "dropout.default": lambda t: f.dropout(t.x, 0.3, True) + f.dropout(t.x, 0.0, True) + f.dropout(t.x, 0.3, False),
    "layer_norm.default": lambda t: f.layer_norm(t.x, (5,), t.x[0, 0, 0], t.x[0, 0, 1], 1e-3) + f.layer_norm(t.x, (5, 5)),
    "group_norm.default": lambda t: f.group_norm(t.x, 3, t.x[0, :, 0, 0], t.x[0, :, 0, 1]) + f.group_norm(t.x, 2),
    "split.Tensor": lambda t: [part.sum() for part in t.x.split(4, 1)],
    "chunk.default": lambda t: [part.sum() for part in (*t.x.chunk(3, 1), *t.x.chunk(4, 2), *t.x.chunk(9, -1))],
    "softmax.int": lambda t: t.x.softmax(1) + t.x.bfloat16().softmax(-1) + t.x.softmax(2, dtype=torch.float64),
    "log_softmax.int": lambda t: t.x.log_softmax(1) + t.x.bfloat16().log_softmax(-1),
    "cross_entropy_loss.default": lambda t: (
        f.cross_entropy(t.x, t.y, ignore_index=2)
        + f.cross_entropy(t.x[:, :, 0, 0].bfloat16(), t.y[:, 0, 0], t.x[0, :, 0, 0].bfloat16(), reduction="sum")
        + f.cross_entropy(t.x[0, :, 0, 0], t.y[0, 0, 0])
    ),
    "pad.default": lambda t: f.pad(t.x, (1, 2, -1, 0)) + f.pad(t.x, (1, 2, -1, 0), value=3.0),
    "masked_fill.Scalar": lambda t: t.x.masked_fill(t.x > 0, float("-inf")).sum() + t.lot.masked_fill(t.lot > 1, 7),
    "where.Scalar": lambda t: torch.where(t.x > 0, 1.5, -2.5),
    "where.ScalarOther": lambda t: torch.where(t.x > 0, t.x, 2),
    "where.ScalarSelf": lambda t: torch.where(t.x > 0, float("-inf"), t.x),
    "max.other": lambda t: torch.max(t.x, t.x[0].double()),
    "min.other": lambda t: torch.min(t.lot, t.y[:, 0]),
    "conv1d.default": lambda t: (
        f.conv1d(t.x[:, :, 0], t.x[:2, :3, 0, :3], None, 2, 1, 1, 2).sum()
        + f.conv1d(t.x[:, :, 0], t.x[:2, :, 0, :3], t.x[:2, 0, 0, 0], padding=2)
    ),
    "conv2d.default": lambda t: f.conv2d(t.x, t.x[:2, :3, :3, :3], t.x[0, 0, 0, :2], 2, 1, 2, 2),
    "diff.default": lambda t: t.x.diff(dim=1).sum() + t.lot.diff(prepend=t.lot[..., :1]) + (t.x > 0).diff(dim=2).sum(),
}  # fmt: skip


class Side(torch.nn.Module):
    """Cases beside one another."""

    def __init__(self, cases: Mapping[str, Callable[[Any], Any]] = CASES) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, x: Any, y: Any, lot: Any) -> Any:
        given = SimpleNamespace(x=x, y=y, lot=lot)
        return {name: case(given) for name, case in self.cases.items()}


def _imported(module: Side, seed: int | None = 3, output: str | None = None) -> pcp.Program:
    y, lot = pcp.spec((4, 5, 5), "i64"), pcp.spec((4, 5), "i32")
    return pcp.from_torch(module, X, y, lot, seed=seed, output=output).program


def test_kept_whole_they_are_what_pytorch_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    looks = exporting._is_composed_of_rows
    monkeypatch.setattr(
        exporting, "_is_composed_of_rows", lambda *given: asked.append(looks(*given)) or asked[-1]
    )
    whole = _imported(Side())
    assert asked[-1] is True
    monkeypatch.setattr(exporting, "_is_composed_of_rows", lambda *_: False)
    assert whole.digest == _imported(Side()).digest
    assert set(CASES) == {name for name, row in TABLE.items() if row.is_composed}


def test_what_a_row_does_not_compute_or_writes_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        part = x.clone().reshape(-1)
        part[:3] = 0.0
        return part

    looks, asked = exporting._is_composed_of_rows, []
    monkeypatch.setattr(
        exporting, "_is_composed_of_rows", lambda *given: asked.append(looks(*given)) or asked[-1]
    )
    for function in (
        lambda t: f.pad(t.x, (1, 1, 1, 1), mode="reflect"),
        lambda t: f.cross_entropy(t.x, t.y, label_smoothing=0.1),
        lambda t: f.cross_entropy(t.x, t.x.softmax(1)),
        lambda t: f.conv2d(t.x[0], t.x[:2]),
        lambda t: t.x.diff(2),
        lambda t: written(t.x),
    ):
        _imported(Side({"it": function}), None)
    assert asked == [False] * 6


def test_blocks_without_gradients_are_dissolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks(t: SimpleNamespace) -> Any:
        with torch.no_grad():
            first, second = t.x.softmax(1), t.x.reshape(4, -1).exp()
            with torch.enable_grad():
                third = t.x * 2
        return (t.x * first).sum() + second.sum() + third.sum()

    programs = []
    for looks in (exporting._is_composed_of_rows, lambda *_: False):
        monkeypatch.setattr(exporting, "_is_composed_of_rows", looks)
        programs.append(pcp.value_and_grad(_imported(Side({"it": blocks}), None, "it"), wrt=1).digest)
    assert programs[0] == programs[1]
