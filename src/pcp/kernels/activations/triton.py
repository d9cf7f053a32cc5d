"""GELU by tanh with the bias before it, and its gradient, for NVIDIA GPUs, in Pallas by Triton.

XLA keeps the tanh of the forward pass for the gradient, in float32; here it is computed again from what the product wrote.
x / 2 (1 + tanh u) is x times the logistic function of 2 u.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.activations.native import CUBIC, ROOT, applies_to_floats
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named
from pcp.kernels.narrow import as_kept, widened
from pcp.kernels.pallas import Array, Reference, is_numbered_in_32_bits, launched
from pcp.kernels.registry import register_kernel
from pcp.ops.movement import reshape, zeros
from pcp.rewrite.row import Effect

LEAST, MOST = 128, 1024
"""Columns that a program takes: they divide the width."""

PER_THREAD = 16
"""Numbers of these that a thread holds."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gelu:
    """x and bias to the activation; with a cotangent as well, to that of x.

    Arguments:
        rounded: whether results are kept in bfloat16.
        interpreted: whether it runs without a GPU, slowly.
    """

    rounded: bool = False
    interpreted: bool = False

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of x (n,), bias (width,), of which n is a multiple, and perhaps a cotangent (n,)."""
        (size,), (width,) = operands[0].shape, operands[1].shape
        block = math.gcd(width, MOST)
        result = ((size,), "bfloat16" if self.rounded else "float32")
        found: Sequence[Array] = launched(
            self._block, size // block, [result], block / PER_THREAD, self.interpreted
        )(*operands)
        return found

    def _block(self, x_ref: Reference, bias_ref: Reference, *references: Reference) -> None:
        import jax.numpy as jnp
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        *more, result = references
        (width,) = bias_ref.shape
        block = math.gcd(width, MOST)
        first = pallas.program_id(0) * block

        def read(reference: Reference, place: Array) -> Array:
            return triton.load(reference.at[pallas.ds(place, block)]).astype(jnp.float32)

        x = read(x_ref, first) + read(bias_ref, first % width)
        logistic = 1.0 / (1.0 + jnp.exp(-2.0 * ROOT * (x + CUBIC * (x * x * x))))
        found = x * logistic
        if more:
            slope = 2.0 * ROOT * (1.0 + 3.0 * CUBIC * (x * x))
            found = read(more[0], first) * (logistic + found * (1.0 - logistic) * slope)
        triton.store(result.at[pallas.ds(first, block)], found.astype(result.dtype))


def _build(rounded: bool) -> Lowered:
    def describe(op: ir.Operation) -> Application:
        (part,) = parts_of(op)
        x = part.inputs["x"]
        bias = part.inputs.get("bias")
        operands = [as_kept(x), zeros((x.shape[-1],), DType.f32) if bias is None else bias]
        operands += [as_kept(part.inputs["cotangent"])] if "cotangent" in part.inputs else []
        return Application(
            Gelu(rounded),
            [reshape(each, (-1,)) for each in operands],
            lambda found: [reshape(widened(found[0]), x.shape)],
        )

    return Lowered(describe, "cuda")


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].shape[-1] % LEAST == 0


for _name, _rounded in itertools.product(("gelu", "gelu_gradient"), (False, True)):
    register_kernel(
        Kernel(
            f"{_name}.triton{'_bf16' * _rounded}",
            Effect.lowers_precision if _rounded else Effect.reassociating,
            "bias and activation together" + ", the result rounded to bfloat16" * _rounded,
            _applies,
            _build(_rounded),
            requires=("sm_80",),
        )
    )
