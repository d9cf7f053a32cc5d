"""What functions of `pcp.linalg` return several of, and how their operands are prepared."""

from typing import Any, NamedTuple

from pcp import ops
from pcp.ops.promotion import broadcast_shape, promoted
from pcp.tensor import Tensor, TensorLike, as_tensor


class QR(NamedTuple):
    """Q with orthonormal columns, and the upper triangular R."""

    Q: Any
    R: Any


class SVD(NamedTuple):
    """U, the singular values, descending, and V^H."""

    U: Any
    S: Any
    Vh: Any


class Eigh(NamedTuple):
    """Eigenvalues, ascending for Hermitian matrices, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class SlogDet(NamedTuple):
    """The sign (phase) of a determinant, and the logarithm of its size."""

    sign: Any
    logabsdet: Any


def inexact(x: TensorLike) -> Tensor:
    """x in a floating-point or complex type: integers become f32."""
    tensor = as_tensor(x)
    return tensor if tensor.dtype.is_differentiable else tensor.astype("f32")


def wide(x: Tensor) -> Tensor:
    """A tensor in a type that LAPACK has."""
    return x if x.dtype.itemsize >= 4 else x.astype("f32")


def together(a: TensorLike, b: TensorLike) -> tuple[Tensor, Tensor]:
    """Two operands in the type in which they meet."""
    left, right = promoted(inexact(a), inexact(b))
    return left, right


def batched(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices with the same leading axes."""
    lead = broadcast_shape(name, a.shape[:-2], b.shape[:-2])
    return ops.broadcast_to(a, (*lead, *a.shape[-2:])), ops.broadcast_to(b, (*lead, *b.shape[-2:]))
