"""Uses of operations that arrange, reduce, pick and place elements."""

import numpy as np
import torch
import torch.nn.functional as F
from tests.peers.from_torch.cases import X3, B, Case, I, J, X, Y, integers, normal

aten = torch.ops.aten

ARRANGEMENT = [
    Case("view.default", lambda x: (x.view(2, 6), x.T.reshape(-1), x.reshape(2, -1)), (X,)),
    Case("_unsafe_view.default", lambda x: aten._unsafe_view(x, [2, 6]), (X,)),
    Case("expand.default", lambda x: (x[:1].expand(5, -1), x.expand(2, 3, 4)), (X,)),
    Case(
        "permute.default transpose.int",
        lambda x: (x.permute(2, 0, 1), x.transpose(0, -1)),
        (normal(2, 3, 4),),
    ),
    Case(
        "squeeze.dim squeeze.dims squeeze.default",
        lambda x: (x.squeeze(1), x.squeeze((0, 1)), x.squeeze()),
        (normal(3, 1, 4, 1),),
    ),
    Case("unsqueeze.default", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(1)), (X,)),
    Case(
        "cat.default stack.default",
        lambda x, y, i: (
            torch.cat([x, y, x]),
            torch.cat([x, i], -1),
            torch.stack([x, y], -1),
            torch.cat([x.new_zeros(0), x]),
        ),
        (X, Y, I),
    ),
    Case("slice.Tensor select.int", lambda x: (x[1:], x[:, ::2], x[-2:-1], x[1], x[:, -1]), (X,)),
    Case(
        "slice_scatter.default select_scatter.default",
        lambda x, y: (torch.slice_scatter(x, y[:, :2], 1, 1, 4, 2), torch.select_scatter(x, y[0], 0, -1)),
        (X, Y),
    ),
    Case("slice_scatter.default", lambda x, y: _written(x, y), (X, Y)),
    Case("split_with_sizes.default", lambda x: x.split([1, 3], 1), (X,)),
    Case("unbind.int", lambda x: x.unbind(1), (X,)),
    Case(
        "flip.default roll.default repeat.default",
        lambda x: (x.flip(0, 1), x.roll((1, -2), (0, 1)), x.roll(3), x.repeat(2, 3, 1)),
        (X,),
    ),
    Case(
        "diagonal.default",
        lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-1), x[None].diagonal(0, 1, 2)),
        (X,),
    ),
    Case("tril.default triu.default", lambda x: (x.tril(), x.triu(1), x.tril(-1)), (X,)),
    Case("constant_pad_nd.default", lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 1, 2, -1), value=1.5)), (X,)),
    Case(
        "copy.default clone.default",
        lambda x, y: (x.clone().copy_(y[0]), x.clone(), x.T.contiguous()),
        (X, Y),
    ),
    Case(
        "_to_copy.default",
        lambda x, i: (
            x.to(torch.float32),
            x.to(torch.int64),
            i.to(torch.float64),
            x.bool(),
            i.to(torch.int8),
        ),
        (3 * X, I),
    ),
    Case(
        "detach.default alias.default",
        lambda x: (x * x.detach(), x * x[...], x.detach()[:] * x, _without_gradient(x)),
        (X,),
    ),
    Case("", lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), (X,)),
]


def _without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.exp()
        shift = scale * x
    return x * scale + shift


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:, ::2] = y[1:, ::2]
    x[0] += 1
    return x


REDUCTION = [
    Case(
        "sum.dim_IntList mean.dim",
        lambda x, i, b: (
            x.sum(),
            x.sum(1),
            x.sum((0, -1), keepdim=True),
            i.sum(),
            b.sum(0),
            x.mean(),
            x.mean((1, 2)),
        ),
        (X3, I, B),
    ),
    Case("sum.default mean.default", lambda x: (aten.sum.default(x), aten.mean.default(x)), (X,)),
    Case(
        "prod.default prod.dim_int",
        lambda x, j: (x.prod(), x.prod(1), x.prod(-1, keepdim=True), j.prod(0)),
        (X, J),
    ),
    Case(
        "amax.default amin.default",
        lambda x: (x.amax(), x.amax(1), x.amin((0, 2), keepdim=True), x.amax(())),
        (X3,),
    ),
    Case(
        "amax.default amin.default",
        lambda x: (x.round().amax(0) + x.abs().amax(), x.amin(0)),
        (np.array([[1.0, 2], [1.0, 2]]),),
    ),
    Case("max.default min.default", lambda x: (x.max(), x.min()), (X3,)),
    Case("max.dim min.dim", lambda x: (*x.max(1), *x.min(-1, keepdim=True), *x[0, 0, 0].max(0)), (X3,)),
    Case("max.dim", lambda x: x.max(0)[0], (np.array([[1.0, 2], [1.0, 2]]),)),
    Case(
        "any.default any.dim any.dims all.default all.dim all.dims",
        lambda b, i: (
            b.any(),
            b.any(0),
            b.any((0, 1)),
            b.all(),
            b.all(1, keepdim=True),
            b.all((0, 1)),
            i.any(1),
        ),
        (B, I),
    ),
    Case(
        "argmax.default argmin.default",
        lambda x: (x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True), x.argmin()),
        (X3,),
    ),
    Case(
        "var.correction",
        lambda x: (x.var(), x.var((0, 2)), x.var(1, correction=0, keepdim=True), x.std(-1)),
        (X3,),
    ),
    Case("var_mean.correction", lambda x: torch.var_mean(x, (1, 2), correction=0), (X3,)),
    Case(
        "cumsum.default cumprod.default logcumsumexp.default",
        lambda x, i, b: (
            x.cumsum(0),
            i.cumsum(-1),
            b.cumsum(0),
            x.cumprod(1),
            x.logcumsumexp(1),
            x[0, 0].cumsum(0),
        ),
        (X, I, B),
    ),
    Case("sort.default", lambda x: (*x.sort(), *x.sort(0, descending=True), x[0, 0].sort()[0]), (X,)),
    Case("sort.stable", lambda i: torch.sort(i, stable=True, dim=0), (I,)),
    Case("topk.default", lambda x: (*x.topk(2), *x.topk(3, 0, largest=False)), (normal(5, 6),)),
    Case(
        "_softmax.default _log_softmax.default",
        lambda x: (x.softmax(1), x.log_softmax(-1), 50 * x[0, 0].softmax(0), (1000 * x).log_softmax(0)),
        (X,),
    ),
    Case(
        "logsumexp.default",
        lambda x: (
            x.logsumexp(1),
            x.logsumexp((0, -1), keepdim=True),
            torch.nn.functional.pad(x, (1, 0), value=-torch.inf).logsumexp(-1),
            (1000 * x).logsumexp((2, 0, 1)),
            x[0, 0, 0].logsumexp(0),
        ),
        (X3,),
    ),
]
PLACES, FAR = integers(-3, 3, 5), integers(0, 2, 2, 3)
INDEXING = [
    Case(
        "index.Tensor",
        lambda x, i: (x[i], x[i, :, i], x[:, i % 3], x[i[:, None], i]),
        (normal(3, 3, 4), PLACES),
    ),
    Case(
        "_unsafe_index.Tensor _unsafe_index_put.default",
        lambda x, i, y: (aten._unsafe_index(x, [i]), aten._unsafe_index_put(x, [i], y, True)),
        (X, PLACES, normal(5, 4)),
    ),
    Case(
        "index_put.default",
        lambda x, i, y: (
            x.index_put((i,), y),
            x.index_put((i,), y[0], accumulate=True),
            x.index_put((i, i), y[:, 0], accumulate=True),
        ),
        (X, np.array([2, -3]), normal(2, 4)),
    ),
    Case(
        "index_put.default", lambda x, i, y: x.index_put((i,), y, accumulate=True), (X, PLACES, normal(5, 4))
    ),
    Case("index_put.default", lambda x, b: _masked(x, b), (X, B)),
    Case(
        "index_select.default embedding.default",
        lambda x, i: (x.index_select(1, i), F.embedding(i, x), F.embedding(i, x, padding_idx=1)),
        (X, integers(0, 3, 5)),
    ),
    Case("gather.default", lambda x, i: (x.gather(1, i), x.gather(0, i), x.gather(1, i[:, :2])), (X, FAR)),
    Case(
        "scatter.src scatter.value",
        lambda x, i, y: (x.scatter(1, i, y[:2, :3]), x.scatter(0, i[:, :2] % 3, 2.5)),
        (X, np.array([[0, 3, 1], [2, 1, 0]]), Y),
    ),
    Case(
        "scatter_add.default",
        lambda x, i, y: (x.scatter_add(1, i, y[:2, :3]), x.scatter_add(0, i, y[:2, :3])),
        (X, FAR, Y),
    ),
    Case("scatter_reduce.two", lambda x, i, y: _reduced(x, i, y[:2, :3], "sum mean"), (X, FAR, Y)),
    Case(
        "scatter_reduce.two",
        lambda x, i, y: _reduced(x.detach(), i, y[:2, :3].detach(), "prod amax amin"),
        (X, FAR, Y),
    ),
    Case("masked_scatter.default", lambda x, b, y: x.masked_scatter(b, y), (X, B, Y)),
]


def _reduced(
    x: torch.Tensor, places: torch.Tensor, source: torch.Tensor, modes: str
) -> tuple[torch.Tensor, ...]:
    return tuple(
        x.scatter_reduce(axis, places, source, mode, include_self=axis == 0)
        for mode in modes.split()
        for axis in (0, 1)
    )


def _masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[mask] = 0.25
    return x
