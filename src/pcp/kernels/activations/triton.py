"""GELU by tanh with the bias before it, and its gradient, for NVIDIA GPUs, in Pallas by Triton.

XLA keeps the tanh of the forward pass for the gradient, in float32; here it is computed again from what the product wrote.
x / 2 (1 + tanh u) is x times the logistic function of 2 u.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Elementwise(ABC):
    """A function of single numbers. Operands have one axis: the first is as long as a result, others are, or are repeated.

    Arguments:
        rounded: whether results are kept in bfloat16.
        results: how many there are.
        interpreted: whether it runs without a GPU, slowly.
    """

    rounded: bool = False
    results: int = 1
    interpreted: bool = False
    per_thread: ClassVar[int] = 8
    """Numbers that a thread holds."""

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of operands as `computed` has them."""
        (size,) = operands[0].shape
        block = math.gcd(MOST, *(each.shape[0] for each in operands))
        result = ((size,), "bfloat16" if self.rounded else "float32")
        found: Sequence[Array] = launched(
            self._block, size // block, [result] * self.results, block / self.per_thread, self.interpreted
        )(*operands)
        return found

    @abstractmethod
    def computed(self, *operands: Array) -> Sequence[Array]:
        """The results, of numbers in float32."""

    def _block(self, *references: Reference) -> None:
        import jax.numpy as jnp
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        operands, results = references[: -self.results], references[-self.results :]
        block = math.gcd(MOST, *(each.shape[0] for each in operands))
        first = pallas.program_id(0) * block

        def read(operand: Reference) -> Array:
            (size,) = operand.shape
            place = first if size == results[0].shape[0] else first % size
            return triton.load(operand.at[pallas.ds(place, block)]).astype(jnp.float32)

        for result, found in zip(results, self.computed(*map(read, operands)), strict=True):
            triton.store(result.at[pallas.ds(first, block)], found.astype(result.dtype))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gelu(Elementwise):
    """x and bias to the activation; with a cotangent as well, to that of x."""

    per_thread: ClassVar[int] = 16

    def computed(self, *operands: Array) -> Sequence[Array]:
        """Of x (n,), bias (width,), of which n is a multiple, and perhaps a cotangent (n,)."""
        import jax.numpy as jnp

        x, bias, *more = operands
        x = x + bias
        logistic = 1.0 / (1.0 + jnp.exp(-2.0 * ROOT * (x + CUBIC * (x * x * x))))
        if not more:
            return (x * logistic,)
        slope = 2.0 * ROOT * (1.0 + 3.0 * CUBIC * (x * x))
        return (more[0] * (logistic + x * logistic * (1.0 - logistic) * slope),)


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
