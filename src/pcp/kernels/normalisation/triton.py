"""Norms along the last axis for NVIDIA GPUs, in Pallas by Triton: a row is read once, and lives in registers.

The gradient adds up the cotangents of scale and bias of the rows that it has at hand, and what other uses of the input
gave; XLA would read the rows again for each of them. Sums with residuals, and cotangents of x, may be kept in bfloat16: then so
is the whole residual stream of a transformer, forward and backward. Cotangents are rounded stochastically there, because each
block adds a little to what the blocks behind it gave, and rounding to nearest would lose it.
"""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.dataflow import defining_op
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.normalisation.rows import applies_to_rows, parameters_of, repeated, rows_of, vectors_of
from pcp.kernels.pallas import (
    Array,
    Reference,
    Rows,
    is_numbered_in_32_bits,
    jnp,
    launched,
    lax,
    next_power_of_two,
    pallas,
)
from pcp.kernels.registry import register_kernel, register_with_gradient
from pcp.kernels.storage import BF16, BF16_SUM, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape, split, zeros
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.again import Again
from pcp.rewrite.column_sums import column_sums, replace_column_sums
from pcp.tensor import Tensor, current_builder

TOGETHER = 2
"""Rows that a program has in registers at once."""

PER_THREAD = 64
"""Numbers of these rows that a thread holds: a row of up to 1,024 stays in one warp, so that no sum waits for another."""

ROWS = 32
"""Rows whose share in the cotangents of scale and bias one program adds up."""

MOST_TERMS = 4
"""Of a cotangent that a program reads, at most."""

WIDEST = 16384
"""Numbers of a row, at most: more do not fit the registers."""


@dataclass(frozen=True, slots=True)
class Norm:
    """A layer or RMS norm of rows.

    Arguments:
        epsilon: what is added to the variance.
        centred: whether the mean is taken off.
        rounded: whether the result is kept in bfloat16; of a gradient, the cotangent of x, rounded stochastically.
    """

    epsilon: float
    centred: bool
    rounded: bool = False

    @property
    def dtype(self) -> str:
        """What the result is kept in."""
        return "bfloat16" if self.rounded else "float32"

    @staticmethod
    def of(named: Named, computes: str, storage: Storage) -> "Norm":
        """That of a composite."""
        return Norm(float(named.attributes["epsilon"]), computes.endswith("layer_norm"), storage is not F32)

    def normed(self, x: Array, rows: Rows) -> tuple[Array, Array]:
        """Rows with mean 0 and variance 1, and the reciprocals of their deviations."""
        if self.centred:
            x = jnp.where(rows.inside, x - _mean(x, rows), 0.0)
        scale = lax.rsqrt(_mean(x * x, rows) + self.epsilon)
        return x * scale, scale


def _threads(width: int) -> float:
    return TOGETHER * next_power_of_two(width) / PER_THREAD


def _mean(x: Array, rows: Rows) -> Array:
    return jnp.sum(x, axis=1, keepdims=True) / rows.width


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Forward:
    """x, scale and bias to the norm; with a residual, and what is added to each row, behind x, to the sum of all and its norm.

    Arguments:
        norm: of x, or of the sum as it is kept.
        keeps: the element type of the sum, by name; empty where there is none.
    """

    norm: Norm
    keeps: str = ""

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of one or two operands (rows, width), and two or three (1, width)."""
        shape = operands[0].shape
        results = [*[(shape, self.keeps)] * bool(self.keeps), (shape, self.norm.dtype)]
        return launched(self._rows, -(-shape[0] // TOGETHER), results, _threads(shape[1]))(*operands)

    def _rows(self, x: Reference, *others: Reference) -> None:
        count, width = x.shape
        rows = Rows(pallas.program_id(0) * TOGETHER, TOGETHER, count, width)
        vector, value = Rows(0, 1, 1, width), rows.read(x)
        if self.keeps:
            residual, shift, scale, bias, total, result = others
            added = (value + rows.read(residual) + vector.read(shift)).astype(total.dtype)
            rows.write(total, added)
            value = jnp.where(rows.inside, added.astype(jnp.float32), 0.0)
        else:
            scale, bias, result = others
        normed, _ = self.norm.normed(value, rows)
        rows.write(result, normed * vector.read(scale) + vector.read(bias))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Backward:
    """x, scale, the cotangent of the norm, and perhaps what is added, to the cotangent of x and parts of sums of columns.

    Arguments:
        norm: of x.
        terms: operands of which the cotangent of the norm is the sum.
        shifted: whether the cotangent of bias is asked for.
        summed: whether the sums of the columns of the cotangent of x are.
        again: the element type, by name, in which the norm is returned in front of all; the bias comes last then. Empty where
            it is not asked for.
    """

    norm: Norm
    terms: int = 1
    shifted: bool = True
    summed: bool = False
    again: str = ""

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of operands (rows, width), but for scale and bias (1, width). The parts are (programs * sums, width): of each program
        the sums for the cotangents of scale and bias, then the sums of the columns of x's cotangent.
        """
        shape = rows, width = operands[0].shape
        programs = -(-rows // ROWS)
        results = [(shape, self.norm.dtype), ((programs * self._sums, width), "float32")]
        results = [*[(shape, self.again)] * bool(self.again), *results]
        return launched(self._rows, programs, results, _threads(width))(*operands)

    @property
    def _sums(self) -> int:
        return 1 + self.shifted + self.summed

    def _rows(self, *references: Reference) -> None:
        *operands, of_x, parts = references
        bias_ref, written = operands[-2:]  # where it is asked for
        x_ref, scale_ref, *others = operands[:-2] if self.again else operands
        cotangents, more = others[: self.terms], others[self.terms :]
        count, width = x_ref.shape
        program, vector = pallas.program_id(0), Rows(0, 1, 1, width)
        scale = vector.read(scale_ref)

        def step(i: Array, before: tuple[Array, ...]) -> tuple[Array, ...]:
            rows = Rows(program * ROWS + i * TOGETHER, TOGETHER, count, width)
            normed, reciprocal = self.norm.normed(rows.read(x_ref), rows)
            if self.again:
                rows.write(written, normed * scale + vector.read(bias_ref))
            g = functools.reduce(operator.add, map(rows.read, cotangents))
            h = g * scale
            cotangent = h - normed * _mean(h * normed, rows)
            if self.norm.centred:
                cotangent = cotangent - _mean(h, rows)
            cotangent = cotangent * reciprocal
            for each in more:
                cotangent = cotangent + rows.read(each)
            rows.write(of_x, rows.stochastically_rounded(cotangent) if self.norm.rounded else cotangent)
            added = (g * normed, *[g] * self.shifted, *[cotangent] * self.summed)
            return tuple(
                total + jnp.sum(x, axis=0, keepdims=True) for total, x in zip(before, added, strict=True)
            )

        nothing = (jnp.zeros(scale.shape, jnp.float32),) * self._sums
        for place, total in enumerate(lax.fori_loop(0, ROWS // TOGETHER, step, nothing)):
            Rows(program * self._sums + place, 1, parts.shape[0], width).write(parts, total)


def _vectors(named: Named, parameters: Sequence[Tensor], width: int) -> list[Tensor]:
    return [reshape(each, (1, width)) for each in vectors_of(named, parameters, width)]


def _forward(op: ir.Operation, storage: Storage) -> Application:
    named = Named.of(op)
    x, *parameters = tensors(op)
    return Application(
        Forward(Norm.of(named, named.name, storage)),
        (rows_of(as_kept(x)), *_vectors(named, parameters, x.shape[-1])),
        lambda results: [reshape(widened(results[0]), x.shape)] * 2,
    )


def _term(x: Tensor) -> tuple[Tensor, Tensor]:
    """What is added to a residual: rows, and the vector that the program adds to each of them, as the bias of a product; or 0.

    The kernel reads the product as it is kept, and adds the vector itself: else XLA would write their sum in float32 first.
    """
    op = defining_op(x.value)
    if op is not None and op.name == "stablehlo.add":
        one, other = (Tensor(value, current_builder()) for value in op.operands)
        for rows, vector in ((as_kept(one), repeated(other)), (as_kept(other), repeated(one))):
            if vector is not None and rows.dtype is DType.bf16:
                return rows, vector
    return as_kept(x), zeros((x.shape[-1],), DType.f32)


def _residual(op: ir.Operation, storage: Storage) -> Application:
    named, (part,) = Named.of(op), parts_of(op)
    x = part.inputs["x"]
    (one, shift), (other, more) = (_term(part.inputs[name]) for name in ("x", "residual"))
    norm = Norm.of(named, attributes_of(op)["computes"], storage)

    def made(results: Sequence[Tensor]) -> list[Tensor]:
        total, y = (reshape(widened(each), x.shape) for each in results)
        return [total, y, y]

    return Application(
        Forward(norm, "bfloat16" if storage is BF16_SUM else "float32"),
        (
            rows_of(one),
            rows_of(other),
            reshape(shift + more, (1, x.shape[-1])),
            *_vectors(named, parameters_of(part), x.shape[-1]),
        ),
        made,
    )


def _gradient(op: ir.Operation, handed: Sequence[Tensor], storage: Storage) -> Application:
    named, inputs, again = Named.of(op), tensors(op), Again.of(op, handed)
    count = len(named.operands)
    x, *parameters = inputs[:count]
    earlier = dict(zip(named.attributes["added"], inputs[count + 1 :], strict=True))
    cotangents = _kept_terms(inputs[count])
    scale, bias = _vectors(named, parameters, x.shape[-1])
    operands = [rows_of(as_kept(x)), scale, *map(rows_of, cotangents)]
    operands += [rows_of(as_kept(earlier[0]))] if 0 in earlier else []
    operands += [] if again is None else [bias]

    norm, shifted = Norm.of(named, named.name, storage), bool(named.attributes["bias"])
    wrt = named.attributes["wrt"]
    sums = column_sums(op.results[wrt.index(0)]) if 0 in wrt else []

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        if again is not None:
            again.replaced(reshape(widened(outputs[0]), x.shape))
            outputs = outputs[1:]
        cotangents = {0: reshape(widened(outputs[0]), x.shape)}
        kinds = ["scale", *["bias"] * shifted]
        *totals, last = _rows_of_sums(outputs[1], len(kinds) + bool(sums))
        if sums:
            replace_column_sums(sums, last)
        else:
            totals.append(last)
        for kind, whole in zip(kinds, totals, strict=True):
            if named.attributes[kind]:
                place = len(cotangents)
                shape = named.operands[place].shape
                gradient = reshape(whole if math.prod(shape) == whole.size else sum_(whole), shape)
                cotangents[place] = earlier[place] + gradient if place in earlier else gradient
        return [cotangents[i] for i in wrt]

    written = "" if again is None else as_kept(again.value).dtype.numpy.name
    return Application(Backward(norm, len(cotangents), shifted, bool(sums), written), operands, results)


def _rows_of_sums(parts: Tensor, count: int) -> list[Tensor]:
    """So many sums, each (width,), of which every program gave a part."""
    totals = sum_(reshape(parts, (-1, count * parts.shape[-1])), 0)
    return [reshape(each, (-1,)) for each in split(reshape(totals, (count, -1)), count)]


def _kept_terms(x: Tensor) -> list[Tensor]:
    """What adds up to x, if all of it is kept in bfloat16, as of products that share an operand; else x.

    The kernel adds them itself: XLA would write their sum in float32 first.
    """
    op = defining_op(x.value)
    if op is not None and op.name == "stablehlo.add":
        terms = [term for value in op.operands for term in _kept_terms(Tensor(value, current_builder()))]
        if len(terms) <= MOST_TERMS and all(term.dtype is DType.bf16 for term in terms):
            return terms
    return [as_kept(x)]


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_rows(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).operands[0].shape[-1] <= WIDEST


_RESULT = ("normalisation.triton_result",)
_ROWS = Kernel(
    "normalisation.triton",
    "a row in registers",
    _applies,
    Lowered(_forward, "cuda"),
    requires=("sm_80",),
    hands=_RESULT,
    storages=(F32, BF16),
    keeps="the result",
)
register_with_gradient(
    _ROWS,
    Lowered(_gradient, "cuda"),
    about="the gradients of x, scale and bias, and what other uses of x gave, while a row is in registers; that of x is "
    "rounded stochastically",
    version=3,
    storages=(F32, BF16_SUM),
)
register_kernel(
    replace(
        _ROWS,
        name="residual_normalisation.triton",
        about="a row and the residual in registers",
        artifact=Lowered(_residual, "cuda"),
        hands_to=lambda op, results: (
            results[0].value,
            *(each.value for each in parameters_of(parts_of(op)[0])),
        ),
        storages=(F32, BF16, BF16_SUM),
    )
)
