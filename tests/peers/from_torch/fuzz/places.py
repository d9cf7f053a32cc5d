"""Draws of reading and writing at places, and in place."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family


@family
def scattering(r: Draw) -> Made:
    shape = r.sizes(r.pick(1, 2, 2, 3), 2, 4)
    axis = r.axis(shape)
    index_shape = tuple(r.integer(1, s) for s in shape)
    places = r.integers(0, shape[axis] - 1, *index_shape)
    x, y = r.floats(*shape), r.floats(*shape)
    name = r.pick(
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "scatter_value",
        "gather",
        "scatter_old",
        "index_reduce",
        "take_along_dim",
    )
    words = f"{name} axis={axis}"
    match name:
        case "scatter":
            unique = np.argsort(r.normal(*shape), axis)
            return words, lambda x, i, y: x.scatter(axis, i, y), x, unique, y
        case "scatter_add":
            return words, lambda x, i, y: x.scatter_add(axis, i, y), x, places, y
        case "scatter_reduce":
            mode, own = r.pick("sum", "prod", "mean", "amax", "amin"), r.flag()
            return (
                f"{words} {mode} include_self={own}",
                lambda x, i, y: x.scatter_reduce(axis, i, y, mode, include_self=own),
                x,
                places,
                y,
            )
        case "scatter_value":
            return words, lambda x, i: x.scatter(axis, i, 2.5), x, places
        case "scatter_old":
            mode = r.pick("add", "multiply")
            return (
                f"{words} {mode}",
                lambda x, i, y: x.detach().scatter(axis, i, y.detach(), reduce=mode),
                x,
                places,
                y,
            )
        case "index_reduce":
            mode, own = r.pick("prod", "mean", "amax", "amin"), r.flag()
            source = r.normal(*shape)
            i = r.integers(0, shape[axis] - 1, shape[axis])
            return (
                f"{words} {mode} {own}",
                lambda x, i, y: x.index_reduce(axis, i, y, mode, include_self=own),
                x,
                i,
                source,
            )
        case "take_along_dim":
            return words, lambda x, i: torch.take_along_dim(x, i, axis), x, np.argsort(r.normal(*shape), axis)
    return words, lambda x, i: x.gather(axis, i), x, places


@family
def indexing(r: Draw) -> Made:  # noqa: C901  # one case an operation
    shape = r.sizes(3, 2, 4)
    count = r.integer(1, 4)
    i, j = (r.integers(-size, size - 1, count) for size in shape[:2])
    x = r.floats(*shape)
    axis = r.axis(shape)
    k = r.integers(0, shape[axis] - 1, count)
    y = r.floats(*(count if a == axis % 3 else s for a, s in enumerate(shape)))
    accumulate, alpha = r.flag(), r.pick(1, 2.5)
    if not accumulate:
        i, j = (r.generator.permutation(size)[: min(shape[:2])] for size in shape[:2])
    values = r.pick(r.floats(len(i), shape[2]), r.floats(1, shape[2]), r.floats(shape[2]), r.floats())
    name = r.integer(0, 17)
    match name:
        case 0:
            return (
                f"index_put {accumulate}",
                lambda x, i, j, v: x.index_put((i, j), v, accumulate),
                x,
                i,
                j,
                values,
            )
        case 1:
            return "index_put one", lambda x, i, v: x.index_put((i,), v, accumulate), x, i, r.floats(shape[2])
        case 2:
            return "x[i, :, j]", lambda x, i, j: x[i, :, j % x.shape[2]], x, i[: len(j)], j[: len(i)]
        case 3:
            return (
                "x[:, i % n, None, j]",
                lambda x, i, j: x[:, i % x.shape[1], None, j % x.shape[2]],
                x,
                i[: len(j)],
                j[: len(i)],
            )
        case 4:
            return f"index_add {axis} {alpha}", lambda x, k, y: x.index_add(axis, k, y, alpha=alpha), x, k, y
        case 5:
            unique = r.generator.permutation(shape[axis])
            return f"index_copy {axis}", lambda x, k, y: x.index_copy(axis, k, y), x, unique, r.floats(*shape)
        case 6:
            return f"index_fill {axis}", lambda x, k: x.index_fill(axis, k, 1.5), x, k
        case 7:
            return f"index_select {axis}", lambda x, k: x.index_select(axis, k), x, k
        case 8:
            return "take", lambda x, k: torch.take(x, k), x, r.integers(-x.size, x.size - 1, 3, 2)
        case 9:
            return (
                f"put {accumulate}",
                lambda x, k, v: x.put(k, v, accumulate),
                x,
                r.generator.permutation(x.size)[:4],
                r.floats(4),
            )
        case 10:
            return "masked_fill", lambda x, b, v: x.masked_fill(b, v), x, r.flags(*shape[1:]), r.floats()
        case 11:
            return (
                "masked_scatter",
                lambda x, b, v: x.masked_scatter(b, v),
                x,
                r.flags(*shape),
                r.floats(*shape),
            )
        case 12:
            return (
                "x[b] = number",
                lambda x, b: _assigned(x, b),
                x,
                r.flags(*r.pick(shape, shape[:1], shape[:2])),
            )
        case 13:
            return "narrow", lambda x: x.narrow(axis, 1, 1), x
        case 14:
            return "where with mask indices", lambda x, b: torch.where(b, x, x.flip(0)), x, r.flags(*shape)
        case 15:
            return (
                "select_scatter",
                lambda x, y: torch.select_scatter(x, y, axis, -1),
                x,
                r.floats(*(s for a, s in enumerate(shape) if a != axis % 3)),
            )
        case 16:
            return (
                "diagonal_scatter",
                lambda x, y: torch.diagonal_scatter(x, y, 0, 0, 1),
                x,
                r.floats(shape[2], min(shape[:2])),
            )
    start, stop, step = r.integer(-4, 3), r.integer(-3, 5), r.integer(1, 3)
    return (
        f"slice_scatter {start} {stop} {step}",
        lambda x, y: torch.slice_scatter(x, y[: x[start:stop:step].shape[0]], 0, start, stop, step),
        x,
        r.floats(*shape),
    )


def _assigned(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x[mask] = 2.5
    return x


@family
def writing(r: Draw) -> Made:
    """Writes in place, through views."""
    shape = r.sizes(2, 3, 4)
    x, y = r.floats(*shape), r.floats(*shape)
    view = r.pick(
        ("transpose", lambda z: z.t()),
        ("slice", lambda z: z[1:, ::2]),
        ("row", lambda z: z[-1]),
        ("diagonal", lambda z: z.diagonal()),
        ("flat", lambda z: z.view(-1)[2:5]),
        ("unfold", lambda z: z.unfold(1, 2, 2)),
        ("expand", lambda z: z[:1].expand(1, -1)),
        ("unbind", lambda z: z.unbind(1)[1]),
        ("split", lambda z: z.split(2)[0]),
        ("chunk", lambda z: z.chunk(2, 1)[1]),
        ("squeeze", lambda z: z[:, :1].squeeze(1)),
        ("as_strided", lambda z: z.as_strided((2, 2), (2, 3), 1)),
        ("movedim", lambda z: z.movedim(0, 1)[1:]),
    )
    write = r.pick(
        ("mul_", lambda v: v.mul_(2)),
        ("add_", lambda v: v.add_(v)),
        ("zero_", lambda v: v.zero_()),
        ("fill_", lambda v: v.fill_(3)),
        ("clamp_", lambda v: v.clamp_(-1, 1)),
        ("relu_", lambda v: v.relu_()),
        ("exp_", lambda v: v.exp_()),
        ("sub_", lambda v: v.sub_(v.clone().flip(0))),
        ("div_", lambda v: v.div_(3)),
        ("neg_", lambda v: v.neg_()),
        ("copy_", lambda v: v.copy_(v.flip(0) * 2)),
        ("masked_fill_", lambda v: v.masked_fill_(v > 0, 0.5)),
        ("index_fill_", lambda v: v.index_fill_(0, torch.tensor([0]), 2.0)),
        ("setitem", lambda v: v.__setitem__(0, v[-1] * 2)),
        ("iadd", lambda v: v.__iadd__(1)),
    )

    def apply(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 1
        before = z[0] * 2
        write[1](view[1](z))
        w = z + y
        view[1](w).add_(z.sum())
        return z, before, w

    return f"{write[0]} through {view[0]}", apply, x, y


@family
def embedding(r: Draw) -> Made:
    table = r.floats(5, 3)
    options = {"padding_idx": r.pick(None, 0, -1, 3), "scale_grad_by_freq": r.flag()}
    if r.flag():
        return (
            f"embedding {options}",
            lambda i, w: F.embedding(i, w, **options),
            r.integers(0, 4, *r.shape(1, 2)),
            table,
        )
    mode = r.pick("sum", "mean", "max")
    weighted = mode == "sum" and r.flag()
    if r.flag():
        i = r.integers(0, 4, 3, 4)
        options = {"padding_idx": r.pick(None, 0, -1)}
        weights = r.floats(3, 4)
        if weighted:
            return (
                f"embedding_bag weighted {options}",
                lambda i, w, p: F.embedding_bag(i, w, mode=mode, per_sample_weights=p, **options),
                i,
                table,
                weights,
            )
        return (
            f"embedding_bag {mode} {options}",
            lambda i, w: F.embedding_bag(i, w, mode=mode, **options),
            i,
            table,
        )
    offsets = np.array([0, 2, 2, 5])
    last = r.flag()
    offsets = np.append(offsets, 7) if last else offsets
    return (
        f"embedding_bag {mode} offsets {last}",
        lambda i, w, o: F.embedding_bag(i, w, o, mode=mode, include_last_offset=last),
        r.integers(0, 4, 7),
        table,
        offsets,
    )
