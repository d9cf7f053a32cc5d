"""Draws of arrangement and of tensors from nothing."""

import torch
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family


@family
def arrangement(r: Draw) -> Made:
    shape = r.shape(1)
    x = r.floats(*shape)
    square = r.floats(*r.sizes(3, 2, 4))
    axis, offset = r.axis(shape), r.integer(-3, 3)
    a, b = r.axis(shape), r.axis(shape)
    first, second = r.pick((0, 1), (1, 2), (-1, 0), (2, 0), (-2, -1))
    shifts = tuple(r.integer(-5, 5) for _ in range(2))
    options = [
        ("flip", lambda x: x.flip(r.pick(axis)), x),
        ("flips", lambda x: torch.flip(x, (0, -1)), square),
        ("fliplr", lambda x: torch.fliplr(x) + torch.flipud(x), square),
        (f"roll {shifts[0]} {axis}", lambda x: x.roll(shifts[0], axis), x),
        (f"roll {shifts}", lambda x: x.roll(shifts, (0, -1)), square),
        (f"roll all {shifts[0]}", lambda x: x.roll(shifts[0]), x),
        (f"diagonal {offset}", lambda x: x.diagonal(offset, first, second), square),
        (f"diag_embed {offset} {first} {second}", lambda x: torch.diag_embed(x, offset, first, second), r.floats(2, 3)),
        (f"diag {offset}", lambda x: torch.diag(x, offset), r.floats(*r.sizes(r.pick(1, 2), 1, 4))),
        (f"diagflat {offset}", lambda x: torch.diagflat(x, offset), r.floats(2, 2)),
        (f"tril {offset}", lambda x: x.tril(offset), square),
        (f"triu {offset}", lambda x: x.triu(offset), square),
        (f"transpose {a} {b}", lambda x: x.transpose(a, b), x),
        (f"movedim {a} {b}", lambda x: x.movedim(a, b), x),
        (f"rot90 {offset}", lambda x: torch.rot90(x, offset, (0, 2)), square),
        ("unsqueeze", lambda x: x.unsqueeze(axis), x),
        ("squeeze", lambda x: x.squeeze(axis), x),
        ("flatten", lambda x: x.flatten(1), square),
        ("unflatten", lambda x: x.unflatten(1, (2, -1)), r.floats(3, 4)),
        ("repeat", lambda x: x.repeat(2, *[1] * x.ndim), x),
        (f"repeat_interleave {axis}", lambda x: x.repeat_interleave(2, axis), x),
        ("repeat_interleave", lambda x: x.repeat_interleave(3), x),
        ("tile", lambda x: x.tile(2, 1), x),
        (f"chunk {axis}", lambda x: x.chunk(2, axis), x),
        (f"tensor_split {axis}", lambda x: x.tensor_split(3, axis), x),
        ("tensor_split at", lambda x: x.tensor_split((1, 2), axis), x),
        (f"split {axis}", lambda x: x.split(2, axis), x),
        (f"unbind {axis}", lambda x: x.unbind(axis), x),
        (f"cat {axis}", lambda x: torch.cat([x, 2 * x, x.detach()], axis), x),
        (f"stack {axis}", lambda x: torch.stack([x, 2 * x], axis), x),
        ("hstack", lambda x: torch.hstack([x, x]), x),
        ("vstack", lambda x: torch.vstack([x, x]), x),
        ("dstack", lambda x: torch.dstack([x, x]), x),
        ("column_stack", lambda x: torch.column_stack([x, x]), x),
        (f"unfold {axis}", lambda x: x.unfold(axis, 2, r.pick(1)), x),
        ("meshgrid", lambda x: torch.meshgrid(x, 2 * x, indexing="xy"), r.floats(3)),
        ("cartesian_prod", lambda x: torch.cartesian_prod(x, x), r.floats(3)),
        ("combinations", lambda x: torch.combinations(x, 2), r.floats(3)),
        ("block_diag", lambda x: torch.block_diag(x, x), r.floats(2, 3)),
        ("broadcast_tensors", lambda x: torch.broadcast_tensors(x, x[:1]), square),
        ("atleast_3d", lambda x: torch.atleast_3d(x), x),
        ("expand_as", lambda x: x[:1].expand_as(x), square),
        ("swapaxes", lambda x: x.swapaxes(0, -1), x),
        ("permute", lambda x: x.permute(-1, 0, 1), square),
        ("mT", lambda x: x.mT, square),
        ("as_strided", lambda x: x.contiguous().as_strided((2, 2), (1, 2), 1), square),
        ("as_strided overlap", lambda x: (2 * x).as_strided((3, 2), (1, 1)), square),
        ("vander", lambda x: torch.vander(x, 3), r.floats(3)),
        ("tril_indices", lambda x: x[0, 0, 0] * torch.tril_indices(3, 4, offset), square),
        ("triu_indices", lambda x: x[0, 0, 0] * torch.triu_indices(3, 4, offset), square),
        ("view_as", lambda x: x.reshape(-1).view_as(x), x),
        ("ravel", lambda x: x.ravel(), x),
        ("numel", lambda x: x * x.numel(), x),
    ]  # fmt: skip
    return r.pick(*options)


@family
def creation(r: Draw) -> Made:
    x = r.floats(2)
    start, stop, step = r.pick(-1, 0, 0.5), r.pick(3, 4.5, 7), r.pick(1, 2, 0.75)
    n = r.integer(1, 6)
    dtype = r.pick(torch.float32, torch.float64, torch.int64, None)
    return r.pick(
        (
            f"arange {start} {stop} {step} {dtype}",
            lambda x: torch.arange(start, stop, step, dtype=dtype) * x[0],
            x,
        ),
        (f"linspace {n}", lambda x: torch.linspace(start, stop, n, dtype=torch.float64) * x[0], x),
        (f"logspace {n}", lambda x: torch.logspace(0, 1, n, dtype=torch.float64) * x[0], x),
        ("eye", lambda x: torch.eye(n, 3, dtype=torch.float64) * x[0], x),
        (
            "like",
            lambda x: (torch.zeros_like(x), torch.ones_like(x, dtype=torch.int32), torch.full_like(x, 2.5)),
            x,
        ),
        (
            "new",
            lambda x: (x.new_tensor([1.0, 2.0]), x.new_full((2,), 3), x.new_zeros(0), x.new_ones(2, 1)),
            x,
        ),
        ("tensor", lambda x: torch.tensor([1, 2]) * x, x),
        (
            "windows",
            lambda x: (torch.hann_window(n) * x[0], torch.hamming_window(n) * x[0], torch.blackman_window(n)),
            x,
        ),
        ("complex", lambda x: torch.zeros(2, dtype=torch.complex128) + x, x),
        ("tri", lambda x: torch.ones(3, 3).tril() * x[0], x),
    )
