"""Activations with the bias before them, and their gradients, for NVIDIA GPUs, in Pallas by Triton.

The gradient adds up the columns of its result where the program does, as for the cotangent of the bias. XLA keeps the weight of
the forward pass for the gradient, in float32; here it is computed again from what the product wrote.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pcp.ir.bindings import Value, ir
from pcp.kernels.activations.native import applies_to_floats, bias_of, with_earlier
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import Part, attributes_of, parts_of, places_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named
from pcp.kernels.pallas import Array, Reference, Tiles, is_numbered_in_32_bits, jnp, launched, pallas, triton
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.again import Again
from pcp.rewrite.column_sums import column_sums, replace_column_sums
from pcp.rewrite.raising.activations import ACTIVATIONS
from pcp.tensor import Tensor

LEAST, MOST = 128, 1024
"""Columns that a program takes: they divide the width."""

ROW, SUMMED = Tiles(1, 1, MOST, 16), Tiles(32, 2, 128, 8)
"""What a program of GELU takes, and of its gradient where columns are added up."""


TAIL = (
    -2.9445057428e-2, 1.4184957598e-1, -2.4268934717e-1, 1.3798665644e-1, -1.2587465949e-2, 1.0103445174e-1, 1.2163059355e-1,
    1.4117673328e-1, 1.4104383851e-1,
)  # fmt: skip
"""Of t = 1 / (1 + z / 2), from the highest power to the first: erfc(z) e^(z^2) / 2, to 4.3e-8 of it for z up to 9.5."""


def activated(function: str, x: Array) -> Array:
    """An activation, by its name in `ACTIVATIONS`, of numbers in float32."""
    if function == "squared_relu":
        return _rectified(x) * _rectified(x)
    if function == "exact_gelu":
        return x * _normal(x)[0]
    return x / (1.0 + jnp.exp2(_exponent(function, x)))


def slope_of(function: str, x: Array) -> Array:
    """The derivative of an activation."""
    if function == "squared_relu":
        return 2.0 * _rectified(x)
    if function == "exact_gelu":
        weight, bell = _normal(x)
        return weight + x * bell * (1.0 / math.sqrt(2.0 * math.pi))
    weight = 1.0 / (1.0 + jnp.exp2(_exponent(function, x)))
    linear, cubic = ACTIVATIONS[function].linear, ACTIVATIONS[function].cubic
    return weight + x * weight * (1.0 - weight) * (linear + 3.0 * cubic * (x * x))


def _rectified(x: Array) -> Array:
    return jnp.where(x <= 0.0, 0.0, x)


def _exponent(function: str, x: Array) -> Array:
    """What 2 has to be raised to: the weight is 1 / (1 + 2^it)."""
    linear, cubic = (
        -each / math.log(2.0) for each in (ACTIVATIONS[function].linear, ACTIVATIONS[function].cubic)
    )
    return x * (linear + cubic * (x * x)) if cubic else x * linear


def _normal(x: Array) -> tuple[Array, Array]:
    """How likely it is that a normal variable is below x; and e^(-x^2 / 2)."""
    bell = jnp.exp2(x * x * (-0.5 / math.log(2.0)))
    t = 1.0 / (1.0 + math.sqrt(0.125) * jnp.abs(x))
    tail = t * TAIL[0] + TAIL[1]
    for each in TAIL[2:]:
        tail = tail * t + each
    tail = tail * t * bell
    return jnp.where(x < 0.0, tail, 1.0 - tail), bell


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
        function: the activation.
        again: whether a gradient returns the activation in front of its results.
    """

    rounded: bool = False
    summed: bool = False
    function: str = "tanh_gelu"
    again: bool = False

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of x (rows, width), bias (1, width), perhaps a cotangent (rows, width). Sums are (rows / SUMMED.rows, width)."""
        rows, width = shape = operands[0].shape
        results = [(shape, "bfloat16" if self.rounded else "float32")] * (1 + self.again)
        results += [((rows // SUMMED.rows, width), "float32")] if self.summed else []
        return self._tiles.launched(self._block, shape, results)(*operands)

    @property
    def _tiles(self) -> Tiles:
        return SUMMED if self.summed else ROW

    def _block(self, x: Reference, bias: Reference, *others: Reference) -> None:
        end = len(others) - 1 - self.summed
        more, (result, *sums) = others[: end - self.again], others[end:]
        width = x.shape[1]
        columns, _ = self._tiles.block(width)

        def step(rows: Array, first: Array) -> Sequence[Array]:
            place = pallas.ds(first, columns)
            known = triton.load(bias.at[pallas.ds(0, 1), place])
            operands = [triton.load(each.at[rows, place]).astype(jnp.float32) for each in (x, *more)]
            value = operands[0] + known
            if self.again:
                written = activated(self.function, value)
                triton.store(others[end - 1].at[rows, place], written.astype(result.dtype))
            value = operands[1] * slope_of(self.function, value) if more else activated(self.function, value)
            triton.store(result.at[rows, place], value.astype(result.dtype))
            return [value] * self.summed

        row, first, totals = self._tiles.run(width, step, len(sums))
        for reference, total in zip(sums, totals, strict=True):
            triton.store(reference.at[pallas.ds(row, 1), pallas.ds(first, columns)], total)


def _forward(op: ir.Operation, storage: Storage) -> Application:
    (part,) = parts_of(op)
    x, bias = part.inputs["x"], part.inputs.get("bias")

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        y = reshape(widened(outputs[0]), x.shape)
        return [y, y, *([] if bias is None else [bias])]

    function = attributes_of(op)["function"]
    return Application(Gelu(storage is BF16, function=function), _rows(op, part, "x"), results)


def _gradient(op: ir.Operation, handed: Sequence[Tensor], storage: Storage) -> Application:
    (part,) = parts_of(op)
    x, width = part.inputs["x"], _width(op)
    rows = _rows(op, part, "x", "cotangent")
    adds_up = rows[0].shape[0] % SUMMED.rows == 0 and "operand2" not in part.inputs
    sums = column_sums(op.results[0]) if adds_up and width == x.shape[-1] else []
    again = Again.of(op, handed, part.inputs.get("bias"))

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        cotangents = list(outputs)
        if again is not None:
            again.replaced(reshape(widened(cotangents.pop(0)), x.shape))
        if sums:
            replace_column_sums(sums, sum_(cotangents[1], 0))
        return [with_earlier(part, reshape(widened(cotangents[0]), x.shape))]

    function = attributes_of(op)["function"]
    return Application(Gelu(storage is BF16, bool(sums), function, again is not None), rows, results)


def _rows(op: ir.Operation, part: Part, *names: str) -> list[Tensor]:
    """Operands of a program: x, the bias, and perhaps a cotangent."""
    x, *more = (as_kept(part.inputs[name]) for name in names)
    width = _width(op)
    return [reshape(each, (-1, width)) for each in (x, bias_of(part, width), *more)]


def _width(op: ir.Operation) -> int:
    """Of the rows that programs take: of x, or of its numbers in order where no bias and no column says which row is whose."""
    ((_, inputs),), (result,) = places_of(op), Named.of(op).results
    width = result.shape[-1]
    return width if "bias" in inputs or width % LEAST == 0 else math.gcd(MOST, result.size)


def _applies(op: ir.Operation) -> bool:
    return applies_to_floats(op) and is_numbered_in_32_bits(op) and _width(op) % LEAST == 0


def _x(op: ir.Operation, _: object) -> tuple[Value]:
    return (parts_of(op)[0].inputs["x"].value,)


register_with_gradient(
    Kernel(
        "gelu.triton",
        "bias and activation together",
        _applies,
        Lowered(_forward, "cuda"),
        requires=("sm_80",),
        version=3,
        hands=("gelu.triton_result",),
        hands_to=_x,
        storages=(F32, BF16),
        keeps="the result",
    ),
    Lowered(_gradient, "cuda"),
    version=4,
)
