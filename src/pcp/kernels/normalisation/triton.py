"""Norms along the last axis for NVIDIA GPUs, in Pallas by Triton: a row is read once, and lives in registers.

The gradient adds up the cotangents of scale and bias of the rows that it has at hand, and what other uses of the input
gave; XLA would read the rows again for each of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.narrow import as_kept, widened
from pcp.kernels.normalisation.rows import applies_to_rows, parameters_of, rows_of, vectors_of
from pcp.kernels.pallas import Array, Reference, Rows, is_numbered_in_32_bits, launched, next_power_of_two
from pcp.kernels.registry import register_kernel
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import sum_
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor

TOGETHER = 2
"""Rows that a program has in registers at once."""

PER_THREAD = 64
"""Numbers of these rows that a thread holds: a row of up to 1,024 stays in one warp, so that no sum waits for another."""

ROWS = 32
"""Rows whose share in the cotangents of scale and bias one program adds up."""

WIDEST = 16384
"""Numbers of a row, at most: more do not fit the registers."""


@dataclass(frozen=True, slots=True)
class Norm:
    """A layer or RMS norm of rows.

    Arguments:
        epsilon: what is added to the variance.
        centred: whether the mean is taken off.
        rounded: whether the result is kept in bfloat16.
        interpreted: whether it runs without a GPU, slowly.
    """

    epsilon: float
    centred: bool
    rounded: bool = False
    interpreted: bool = False

    @staticmethod
    def of(named: Named, computes: str, rounded: bool = False) -> "Norm":
        """That of a composite."""
        return Norm(float(named.attributes["epsilon"]), computes.endswith("layer_norm"), rounded)

    def normed(self, x: Array, rows: Rows) -> tuple[Array, Array]:
        """Rows with mean 0 and variance 1, and the reciprocals of their deviations."""
        import jax.numpy as jnp
        from jax import lax

        if self.centred:
            x = jnp.where(rows.inside, x - _mean(x, rows), 0.0)
        scale = lax.rsqrt(_mean(x * x, rows) + self.epsilon)
        return x * scale, scale


def _threads(width: int) -> float:
    return TOGETHER * next_power_of_two(width) / PER_THREAD


def _mean(x: Array, rows: Rows) -> Array:
    import jax.numpy as jnp

    return jnp.sum(x, axis=1, keepdims=True) / rows.width


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Forward:
    """x, scale and bias to the norm; with a residual after x, to the sum and its norm."""

    norm: Norm
    residual: bool = False

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of operands (rows, width), and two (1, width)."""
        shape = rows, width = operands[0].shape
        results = [(shape, "bfloat16" if self.norm.rounded else "float32")]
        if self.residual:
            results.insert(0, (shape, "float32"))
        programs = -(-rows // TOGETHER)
        found: Sequence[Array] = launched(
            self._rows, programs, results, _threads(width), self.norm.interpreted
        )(*operands)
        return found

    def _rows(self, *references: Reference) -> None:
        from jax.experimental import pallas

        inputs, results = references[: 3 + self.residual], references[3 + self.residual :]
        *terms, scale, bias = inputs
        count, width = results[0].shape
        rows, vector = Rows(pallas.program_id(0) * TOGETHER, TOGETHER, count, width), Rows(0, 1, 1, width)
        x = rows.read(terms[0])
        if self.residual:
            x = x + rows.read(terms[1])
            rows.write(results[0], x)
        normed, _ = self.norm.normed(x, rows)
        rows.write(results[-1], normed * vector.read(scale) + vector.read(bias))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Backward:
    """x, scale, the cotangent of the norm, and perhaps what is added, to the cotangent of x and parts of scale's and bias'."""

    norm: Norm

    def __call__(self, *operands: Array) -> Sequence[Array]:
        """Of operands (rows, width), but for scale (1, width). The parts are (programs, width)."""
        shape = rows, width = operands[0].shape
        programs = -(-rows // ROWS)
        parts = ((programs, width), "float32")
        results = [(shape, "float32"), parts, parts]
        found: Sequence[Array] = launched(
            self._rows, programs, results, _threads(width), self.norm.interpreted
        )(*operands)
        return found

    def _rows(self, *references: Reference) -> None:
        import jax.numpy as jnp
        from jax import lax
        from jax.experimental import pallas

        x_ref, scale_ref, g_ref, *more, of_x, of_scale, of_bias = references
        count, width = x_ref.shape
        program = pallas.program_id(0)
        scale = Rows(0, 1, 1, width).read(scale_ref)
        part = Rows(program, 1, of_scale.shape[0], width)

        def step(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            rows = Rows(program * ROWS + i * TOGETHER, TOGETHER, count, width)
            normed, reciprocal = self.norm.normed(rows.read(x_ref), rows)
            g = rows.read(g_ref)
            h = g * scale
            found = h - normed * _mean(h * normed, rows)
            if self.norm.centred:
                found = found - _mean(h, rows)
            found = found * reciprocal
            for each in more:
                found = found + rows.read(each)
            rows.write(of_x, found)
            return tuple(
                total + jnp.sum(x, axis=0, keepdims=True)
                for total, x in zip(sums, (g * normed, g), strict=True)
            )

        nothing = jnp.zeros((1, part.padded), jnp.float32)
        for_scale, for_bias = lax.fori_loop(0, ROWS // TOGETHER, step, (nothing, nothing))
        part.write(of_scale, for_scale)
        part.write(of_bias, for_bias)


def _vectors(named: Named, parameters: Sequence[Tensor], width: int) -> list[Tensor]:
    return [reshape(each, (1, width)) for each in vectors_of(named, parameters, width)]


def _forward(rounded: bool) -> Lowered:
    def describe(op: ir.Operation) -> Application:
        named = Named.of(op)
        x, *parameters = tensors(op)
        return Application(
            Forward(Norm.of(named, named.name, rounded)),
            (rows_of(as_kept(x)), *_vectors(named, parameters, x.shape[-1])),
            lambda found: [reshape(widened(found[0]), x.shape)],
        )

    return Lowered(describe, "cuda")


def _residual(rounded: bool) -> Lowered:
    def describe(op: ir.Operation) -> Application:
        named, (part,) = Named.of(op), parts_of(op)
        x = part.inputs["x"]
        terms = [rows_of(as_kept(part.inputs[name])) for name in ("x", "residual")]
        return Application(
            Forward(Norm.of(named, attributes_of(op)["computes"], rounded), residual=True),
            (*terms, *_vectors(named, parameters_of(part), x.shape[-1])),
            lambda found: [reshape(found[0], x.shape), reshape(widened(found[1]), x.shape)],
        )

    return Lowered(describe, "cuda")


def _gradient(op: ir.Operation) -> Application:
    named, given = Named.of(op), tensors(op)
    count = len(named.operands)
    x, *parameters = given[:count]
    earlier = dict(zip(named.attributes["added"], given[count + 1 :], strict=True))
    operands = [
        rows_of(as_kept(x)),
        _vectors(named, parameters, x.shape[-1])[0],
        rows_of(as_kept(given[count])),
    ]
    operands += [rows_of(as_kept(earlier[0]))] if 0 in earlier else []

    def results(found: Sequence[Tensor]) -> list[Tensor]:
        cotangents = {0: reshape(found[0], x.shape)}
        for kind, parts in zip(("scale", "bias"), found[1:], strict=True):
            if named.attributes[kind]:
                place = len(cotangents)
                shape = named.operands[place].shape
                whole = sum_(parts, 0)
                made = reshape(whole if math.prod(shape) == whole.size else sum_(whole), shape)
                cotangents[place] = earlier[place] + made if place in earlier else made
        return [cotangents[i] for i in named.attributes["wrt"]]

    return Application(Backward(Norm.of(named, named.name)), operands, results)


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_rows(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).operands[0].shape[-1] <= WIDEST


for _rounded in (False, True):
    for _family, _how, _artifact in (
        ("normalisation", "a row in registers", _forward(_rounded)),
        ("residual_normalisation", "a row and the residual in registers", _residual(_rounded)),
    ):
        register_kernel(
            Kernel(
                f"{_family}.triton{'_bf16' * _rounded}",
                Effect.lowers_precision if _rounded else Effect.reassociating,
                _how + ", the result rounded to bfloat16" * _rounded,
                _applies,
                _artifact,
                requires=("sm_80",),
            )
        )
register_kernel(
    Kernel(
        "normalisation_gradient.triton",
        Effect.reassociating,
        "the gradients of x, scale and bias, and what other uses of x gave, while a row is in registers",
        _applies,
        Lowered(_gradient, "cuda"),
        requires=("sm_80",),
    )
)
