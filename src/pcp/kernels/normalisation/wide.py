"""Norms of rows that no registers hold, as group norms of images have them, for NVIDIA GPUs, in Pallas by Triton.

A row is read some columns at a time, and again for each of its means: what was read from memory once comes from the cache then.
The rows have no scale and no bias of each column: of groups these belong to channels, and XLA applies them to the result.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.normalisation.rows import applies_to_rows
from pcp.kernels.normalisation.triton import WIDEST, Norm
from pcp.kernels.pallas import Array, Reference, is_numbered_in_32_bits, jnp, launched, lax, pallas, triton
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape

LEAST, MOST = 512, 4096
"""Columns that are read at once: they divide the width."""
PER_THREAD = 16
"""Of these, how many a thread holds."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Wide:
    """x to its norm; with the cotangent of that, and perhaps what is added, to the cotangent of x. Each is (rows, width)."""

    norm: Norm

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of operands of one shape."""
        rows, width = shape = operands[0].shape
        size = math.gcd(width, MOST)
        parts = [each.reshape(-1, size) for each in operands]
        results = [(parts[0].shape, self.norm.dtype)]
        row = functools.partial(self._row, width // size)
        body = launched(row, rows, results, size / PER_THREAD)
        return [each.reshape(shape) for each in body(*parts)]

    def _row(self, count: int, x: Reference, *others: Reference) -> None:
        *more, result = others
        size = x.shape[1]
        first = pallas.program_id(0) * count

        def read(reference: Reference, i: Array) -> Array:
            return triton.load(reference.at[pallas.ds(first + i, 1), pallas.ds(0, size)]).astype(jnp.float32)

        def mean(of: Callable[[Array], Array]) -> Array:
            totals = lax.fori_loop(
                0, count, lambda i, total: total + of(i), jnp.zeros((1, size), jnp.float32)
            )
            return jnp.sum(totals, axis=1, keepdims=True) / (count * size)

        middle = mean(lambda i: read(x, i)) if self.norm.centred else 0.0
        scale = lax.rsqrt(mean(lambda i: (read(x, i) - middle) * (read(x, i) - middle)) + self.norm.epsilon)

        def normed(i: Array) -> Array:
            return (read(x, i) - middle) * scale

        along = mean(lambda i: read(more[0], i) * normed(i)) if more else 0.0
        shift = mean(lambda i: read(more[0], i)) if more and self.norm.centred else 0.0

        def step(i: Array, _: None) -> None:
            value = normed(i)
            if more:
                value = (read(more[0], i) - value * along - shift) * scale
            for each in more[1:]:
                value = value + read(each, i)
            place = result.at[pallas.ds(first + i, 1), pallas.ds(0, size)]
            triton.store(place, value.astype(result.dtype))

        lax.fori_loop(0, count, step, None)


def _describe(op: ir.Operation, storage: Storage) -> Application:
    named = Named.of(op)
    x, *others = tensors(op)
    operands = [reshape(as_kept(each), (-1, x.shape[-1])) for each in (x, *others)]
    return Application(
        Wide(Norm.of(named, named.name, storage)),
        operands,
        lambda results: [reshape(widened(results[0]), x.shape)],
    )


def _applies(op: ir.Operation) -> bool:
    named = Named.of(op)
    width = named.operands[0].shape[-1]
    return (
        applies_to_rows(op)
        and is_numbered_in_32_bits(op)
        and len(named.operands) == 1
        and width > WIDEST
        and width % LEAST == 0
    )


for _name, _storages in (("normalisation", (F32, BF16)), ("normalisation_gradient", (F32,))):
    register_kernel(
        Kernel(
            f"{_name}.triton_wide",
            "a row in parts, read from the cache again for each of its means",
            _applies,
            Lowered(_describe, "cuda"),
            requires=("sm_80",),
            storages=_storages,
            keeps="the result",
        )
    )
