"""Decompositions by LAPACK, as JAX calls it on a CPU, inside a trace."""

from collections.abc import Callable
from typing import Any

import jax

from pcp.importers.imported_module import clean
from pcp.ir.bindings import bytecode_of, parse_module
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls
from pcp.tensor import Tensor, current_builder


def qr(a: Tensor, mode: str) -> list[Tensor]:
    """Q and R, `reduced` or `complete`."""
    return _inlined(lambda x: tuple(jax.numpy.linalg.qr(x, mode)), a)


def eigh(a: Tensor, triangle: str) -> list[Tensor]:
    """The eigenvalues of Hermitian matrices of which the triangle `L` or `U` is read, ascending, and their eigenvectors."""
    return _inlined(lambda x: tuple(jax.numpy.linalg.eigh(x, triangle, symmetrize_input=False)), a)


def svd(a: Tensor, full: bool) -> list[Tensor]:
    """U, the singular values, descending, and V^H."""
    return _inlined(lambda x: tuple(jax.numpy.linalg.svd(x, full)), a)


def singular_values(a: Tensor) -> Tensor:
    """The singular values, descending."""
    return _inlined(lambda x: (jax.numpy.linalg.svd(x, compute_uv=False),), a)[0]


def eig(a: Tensor) -> list[Tensor]:
    """The eigenvalues of any matrices, and their right eigenvectors, complex."""
    return _inlined(lambda x: tuple(jax.numpy.linalg.eig(x)), a)


def _inlined(function: Callable[..., Any], tensor: Tensor) -> list[Tensor]:
    make_struct: Callable[..., Any] = jax.ShapeDtypeStruct  # jax does not annotate this constructor
    with jax.enable_x64(True):
        traced = jax.jit(function).trace(make_struct(tensor.shape, tensor.dtype.numpy))
        module = parse_module(bytecode_of(traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")))
    clean(module)
    inline_calls(module)
    builder = current_builder()
    return [Tensor(value, builder) for value in builder.inline(main_of(module), [tensor.value])]
