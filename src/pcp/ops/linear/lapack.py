"""Derivatives of the custom calls by which JAX computes linear algebra on a CPU. Those for GPUs have none: lower for a CPU.

The matrices follow the conventions of LAPACK: several factors packed into one matrix, triangles that are not read, letters
for options. Which derivative each has is told in `factorization` and `decompositions`.
"""

import re
from collections.abc import Sequence

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.ops.derivative import Cotangent, Expanded, Expansion, Outgoing, Primal, Rule
from pcp.ops.elementwise import complex_, conj, imag, real
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.linear.decompositions import (
    eig_tangents,
    eigh_tangents,
    hermitian,
    lu_tangent,
    permutation_of,
    qr_tangents,
    reflected,
    reflection_tangents,
    svd_tangents,
)
from pcp.ops.linear.factorization import adjoint, cholesky_cotangent
from pcp.ops.linear.matrices import tril, triu
from pcp.ops.movement import broadcast_to, expand_dims, pad
from pcp.ops.record import supply_derivatives
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor, current_builder, emit


def option(primal: Primal, name: str) -> str:
    """An option of LAPACK, as its letter; empty if it is absent."""
    match = re.search(rf"\b{name} = (\d+)", str(primal.op.attributes["mhlo.backend_config"]))
    return chr(int(match[1])) if match else ""


def _again(primal: Primal, specs: Sequence[TensorSpec], **options: str) -> list[Tensor]:
    """The same call with other options, which returns more, in the place of the one there is.

    With other options, LAPACK may return eigenvalues in another order: one call must give all results.
    """
    attributes = dict(primal.op.attributes.items())
    config = str(attributes["mhlo.backend_config"])
    for name, letter in options.items():
        config = re.sub(rf"\b{name} = \d+", f"{name} = {ord(letter)}", config)
    attributes["mhlo.backend_config"] = ir.Attribute.parse(config)
    attributes.pop("sdy.sharding_rule", None)  # it repeats the sizes
    builder = current_builder()
    with builder.before(primal.op):
        op = builder.emit("stablehlo.custom_call", list(primal.op.operands), list(specs), attributes)
    for old, new in zip(primal.op.results, op.results, strict=True):
        if old.type == new.type:
            primal.engine.replace(old, new)
    return [Tensor(value, builder) for value in op.results]


def _potrf(primal: Primal, g: Cotangent, _: Cotangent) -> Sequence[Cotangent]:
    """The other triangle comes out as it was."""
    assert g is not None
    lower = option(primal, "uplo") != "U"
    rest = triu(g, 1) if lower else tril(g, -1)
    return [cholesky_cotangent(primal.output(), g, lower) + rest]


def _trsm(primal: Primal) -> Sequence[Tensor]:
    a, b = primal.inputs
    ways = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    attributes = {
        "left_side": option(primal, "side") == "L",
        "lower": option(primal, "uplo") == "L",
        "unit_diagonal": option(primal, "diag") == "U",
        "transpose_a": f"#stablehlo<transpose {ways[option(primal, 'trans_x')]}>",
    }
    return [emit("triangular_solve", (a, b), (b.spec,), attributes)]


def _getrf(primal: Primal) -> Sequence[Tensor]:
    a, (packed, pivots, info) = primal.input(0), primal.outputs
    order = expand_dims(permutation_of(pivots - 1, a.shape[-2]), a.ndim - 1)
    exchanged = take_along_axis(a, broadcast_to(order, a.shape), a.ndim - 2)
    return [lu_tangent(packed, exchanged), pivots, info]


def _geqrf(primal: Primal) -> Sequence[Tensor]:
    a, (packed, scales) = primal.input(0), primal.outputs
    k = min(a.shape[-2:])
    q, r = reflected(packed[..., :, :k], scales), triu(packed[..., :k, :])
    dq, dr = qr_tangents(q, r, a)
    return reflection_tangents(packed, scales, q, dq, dr)


def _orgqr(primal: Primal) -> Sequence[Tensor]:
    return [reflected(*primal.inputs)]


def _syevd(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    a, results = primal.input(0), list(primal.outputs)
    if option(primal, "mode") == "N":
        results = _again(primal, [t.spec for t in results], mode="V")
    vectors, values, info = results
    tangents = eigh_tangents(vectors, values, hermitian(a, option(primal, "uplo") == "L"))
    return Expanded([*tangents, info], results)


def _gesdd(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    a, results = primal.input(0), list(primal.outputs)
    left, s, u, vh, info = results
    lead, (m, n), k = a.shape[:-2], a.shape[-2:], s.shape[-1]
    if option(primal, "mode") == "A" and m != n and (cotangents[2], cotangents[3]) != (None, None):
        primal.refuse("a full singular value decomposition of a matrix that is not square has no derivative")
    if (option(primal, "mode") != "S" and m != n) or option(primal, "mode") == "N":
        sides = [TensorSpec((*lead, m, k), a.dtype), TensorSpec((*lead, k, n), a.dtype)]
        specs = [left.spec, s.spec, *sides, info.spec]
        results = _again(primal, specs, mode="S")
        _, s, u, vh, _ = results
    du, ds, dvh = svd_tangents(u, s, vh, a)
    return Expanded([left, ds, du, dvh, info], results)


def _geev(primal: Primal, *cotangents: Cotangent) -> Outgoing:
    a, results = primal.input(0), list(primal.outputs)
    if option(primal, "compute_left") == "N" or option(primal, "compute_right") == "N":
        results = _again(primal, [t.spec for t in results], compute_left="V", compute_right="V")
    *parts, left, right, info = results
    if not a.dtype.is_float:
        values, matrix = parts[0], a
    else:
        values, matrix = complex_(*parts), complex_(a, 0)
    dvalues, dright = eig_tangents(values, right, left, matrix)
    _, others = eig_tangents(conj(values), left, right, adjoint(matrix))
    tangents = [real(dvalues), imag(dvalues)] if a.dtype.is_float else [dvalues]
    return Expanded([*tangents, others, dright, info], results)


def _gtsv(primal: Primal, *cotangents: Cotangent) -> Sequence[Cotangent]:
    """A x = b for a matrix of three diagonals: the cotangent of b is A^-T g =: h, that of A is -h x^T.

    The first element of the lower diagonal and the last one of the upper are not read.
    """
    g, x = cotangents[3], primal.output(3)
    if g is None or any(other is not None for other in cotangents[:3]):
        primal.refuse("the factors of a tridiagonal system have no derivative; only its solution has one")
    lower, middle, upper, _ = primal.inputs
    front, back = ([(0, 0)] * (middle.ndim - 1) + [pair] for pair in ((1, 0), (0, 1)))
    transposed = [pad(upper[..., :-1], front), middle, pad(lower[..., 1:], back), g]
    builder = current_builder()
    specs, attributes = [t.spec for t in primal.outputs], dict(primal.op.attributes.items())
    op = builder.emit("stablehlo.custom_call", [t.value for t in transposed], specs, attributes)
    h = Tensor(op.results[3], builder)
    return [
        pad(-sum_(h[..., 1:, :] * x[..., :-1, :], -1), front),
        -sum_(h * x, -1),
        pad(-sum_(h[..., :-1, :] * x[..., 1:, :], -1), back),
        h,
    ]


# routine, the letters of the element types that have one, derivative
ROUTINES: tuple[tuple[str, str, Rule], ...] = (
    ("potrf", "sdcz", _potrf),
    ("trsm", "sdcz", Expansion(_trsm)),
    ("getrf", "sdcz", Expansion(_getrf)),
    ("geqrf", "sdcz", Expansion(_geqrf)),
    ("orgqr", "sd", Expansion(_orgqr)),
    ("ungqr", "cz", Expansion(_orgqr)),
    ("syevd", "sd", _syevd),
    ("heevd", "cz", _syevd),
    ("gesdd", "sdcz", _gesdd),
    ("geev", "sdcz", _geev),
    ("gtsv", "sdcz", _gtsv),
)

for _name, _letters, _rule in ROUTINES:
    supply_derivatives({f"custom_call.lapack_{letter}{_name}_ffi": _rule for letter in _letters})
