"""Dropout for NVIDIA GPUs, in Pallas by Triton: the program's random bits in registers, made anew in the gradient."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.dropout.native import BITS, Draw, applies_to_floats
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.pallas import Array, Reference, is_numbered_in_32_bits, jnp, launched, lax, pallas, triton
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape
from pcp.ops.threefry import PARITY, ROTATIONS

LEAST, MOST = 128, 1024
"""Numbers that a program takes: they divide the size."""
PER_THREAD = 8


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Dropout:
    """Key (2,) and numbers (n,) to those that are kept, scaled, and zeros.

    Arguments:
        draw: which are kept.
        rounded: whether results are kept in bfloat16.
    """

    draw: Draw
    rounded: bool = False

    def __call__(self, key: Array, x: Array) -> Sequence[Array]:
        """As (n,)."""
        (size,) = x.shape
        block = math.gcd(MOST, size)
        results = [((size,), "bfloat16" if self.rounded else "float32")]
        return launched(
            functools.partial(self._block, block),
            size // block,
            results,
            block / PER_THREAD,
        )(key, x)

    def _block(self, block: int, key: Reference, x: Reference, result: Reference) -> None:
        first = pallas.program_id(0) * block
        place = pallas.ds(first, block)
        counters = lax.convert_element_type(first + jnp.arange(block, dtype=jnp.int32), jnp.uint32)
        kept = (_words(key[0], key[1], counters) >> jnp.uint32(32 - BITS)) < jnp.uint32(self.draw.below)
        number, by = triton.load(x.at[place]).astype(jnp.float32), jnp.float32(self.draw.by)
        scaled = number / by if self.draw.divides else number * by
        triton.store(result.at[place], jnp.where(kept, scaled, 0.0).astype(result.dtype))


def _words(first: Array, second: Array, counters: Array) -> Array:
    """The random words of `pcp.ops.threefry` for counters below 2^32."""
    schedule = (first, second, first ^ second ^ jnp.uint32(PARITY))
    high, low = jnp.zeros_like(counters) + first, counters + second
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            high = high + low
            turned = (low << jnp.uint32(distance)) | (low >> jnp.uint32(32 - distance))
            low = high ^ turned
        high = high + schedule[(group + 1) % 3]
        low = low + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return high ^ low


def _describe(op: ir.Operation, storage: Storage) -> Application:
    key, x = tensors(op)
    return Application(
        Dropout(Draw.of(op), storage is BF16),
        [key, reshape(as_kept(x), (-1,))],
        lambda results: [reshape(widened(results[0]), x.shape)],
    )


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].size % LEAST == 0


register_kernel(
    Kernel(
        "dropout.triton",
        "random bits in registers, made again from the key in the backward pass",
        _applies,
        Lowered(_describe, "cuda"),
        requires=("sm_80",),
        storages=(F32, BF16),
        keeps="the result",
    )
)
