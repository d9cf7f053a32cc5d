"""GELU by tanh with the bias before it, and its gradient, for NVIDIA GPUs, in Pallas by Triton.

The gradient adds up the columns of its result where the program does, as for the cotangent of the bias. XLA keeps the tanh of
the forward pass for the gradient, in float32; here it is computed again from what the product wrote.
x / 2 (1 + tanh u) is x times the logistic function of 2 u.
"""

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
from pcp.kernels.pallas import Array, Reference, Tiles, is_numbered_in_32_bits, jnp, launched, pallas, triton
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape, zeros
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.column_sums import column_sums, replace_column_sums
from pcp.tensor import Tensor

LEAST, MOST = 128, 1024
"""Columns that a program takes: they divide the width."""

ROW, SUMMED = Tiles(1, 1, MOST, 16), Tiles(32, 2, 128, 8)
"""What a program of GELU takes, and of its gradient where columns are added up."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Elementwise(ABC):
    """A function of single numbers. Operands have one axis: the first is as long as a result, others are, or are repeated.

    Arguments:
        rounded: whether results are kept in bfloat16.
        results: how many there are.
    """

    rounded: bool = False
    results: int = 1
    per_thread: ClassVar[int] = 8
    """Numbers that a thread holds."""

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of operands as `computed` has them."""
        (size,) = operands[0].shape
        block = math.gcd(MOST, *(each.shape[0] for each in operands))
        result = ((size,), "bfloat16" if self.rounded else "float32")
        return launched(self._block, size // block, [result] * self.results, block / self.per_thread)(
            *operands
        )

    @abstractmethod
    def computed(self, *operands: Array) -> Sequence[Array]:
        """The results, of numbers in float32."""

    def _block(self, *references: Reference) -> None:
        operands, results = references[: -self.results], references[-self.results :]
        block = math.gcd(MOST, *(each.shape[0] for each in operands))
        first = pallas.program_id(0) * block

        def read(operand: Reference) -> Array:
            (size,) = operand.shape
            place = first if size == results[0].shape[0] else first % size
            return triton.load(operand.at[pallas.ds(place, block)]).astype(jnp.float32)

        for result, value in zip(results, self.computed(*map(read, operands)), strict=True):
            triton.store(result.at[pallas.ds(first, block)], value.astype(result.dtype))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gelu:
    """From x and bias to the activation; with a cotangent as well, to x's, and perhaps to parts of the sums of its columns.

    Arguments:
        rounded: whether the result is kept in bfloat16. It is added up as it was before.
        summed: whether the sums are asked for.
    """

    rounded: bool = False
    summed: bool = False

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of x (rows, width), bias (1, width), perhaps a cotangent (rows, width). Sums are (rows / SUMMED.rows, width)."""
        rows, width = shape = operands[0].shape
        results = [(shape, "bfloat16" if self.rounded else "float32")]
        results += [((rows // SUMMED.rows, width), "float32")] if self.summed else []
        return self._tiles.launched(self._block, shape, results)(*operands)

    @property
    def _tiles(self) -> Tiles:
        return SUMMED if self.summed else ROW

    def _block(self, x: Reference, bias: Reference, *others: Reference) -> None:
        more, (result, *sums) = others[: -1 - self.summed], others[-1 - self.summed :]
        width = x.shape[1]
        columns, _ = self._tiles.block(width)

        def step(rows: Array, first: Array) -> Sequence[Array]:
            place = pallas.ds(first, columns)
            known = triton.load(bias.at[pallas.ds(0, 1), place])
            operands = [triton.load(each.at[rows, place]).astype(jnp.float32) for each in (x, *more)]
            value = self._computed(operands[0] + known, *operands[1:])
            triton.store(result.at[rows, place], value.astype(result.dtype))
            return [value] * self.summed

        row, first, totals = self._tiles.run(width, step, len(sums))
        for reference, total in zip(sums, totals, strict=True):
            triton.store(reference.at[pallas.ds(row, 1), pallas.ds(first, columns)], total)

    @staticmethod
    def _computed(x: Array, *cotangent: Array) -> Array:
        """Of numbers with their bias, in float32."""
        factor = -2.0 * ROOT / math.log(2.0)
        below = 1.0 + jnp.exp2(x * (factor + factor * CUBIC * (x * x)))
        if not cotangent:
            return x / below
        logistic = 1.0 / below
        slope = 2.0 * ROOT + 6.0 * ROOT * CUBIC * (x * x)
        return cotangent[0] * (logistic + x * logistic * (1.0 - logistic) * slope)


def _describe(op: ir.Operation, storage: Storage) -> Application:
    (part,) = parts_of(op)
    x = part.inputs["x"]
    bias = part.inputs.get("bias")
    operands = [as_kept(x), zeros((x.shape[-1],), DType.f32) if bias is None else bias]
    operands += [as_kept(part.inputs["cotangent"])] if "cotangent" in part.inputs else []
    rows = [reshape(each, (-1, x.shape[-1])) for each in operands]
    sums = column_sums(op.results[0]) if rows[0].shape[0] % SUMMED.rows == 0 else []

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        if sums:
            replace_column_sums(sums, sum_(outputs[1], 0))
        return [reshape(widened(outputs[0]), x.shape)]

    return Application(Gelu(storage is BF16, bool(sums)), rows, results)


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].shape[-1] % LEAST == 0


for _name in ("gelu", "gelu_gradient"):
    register_kernel(
        Kernel(
            f"{_name}.triton",
            "bias and activation together",
            _applies,
            Lowered(_describe, "cuda"),
            requires=("sm_80",),
            version=2,
            storages=(F32, BF16),
            keeps="the result",
        )
    )
