"""Products of vectors and matrices under the names that NumPy has for them."""

from pcp.ops.elementwise import conj
from pcp.ops.linear.products import dot_general, matmul
from pcp.ops.movement import concatenate, expand_dims, moveaxis, ravel, reshape, roll, squeeze, swapaxes
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import aligned, promoted
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def dot(x: TensorLike, y: TensorLike) -> Tensor:
    """The sum of products over the last axis of x and the second last of y (the only one of a vector).

    Returns:
        Axes: the others of x, then the others of y. A scalar multiplies the other operand.

    Raises:
        ShapeMismatch: the sizes of these axes differ.
    """
    left, right = promoted(x, y)
    if not left.ndim or not right.ndim:
        return left * right
    return dot_general(left, right, ((left.ndim - 1,), (max(right.ndim - 2, 0),)))


@operation
def vdot(x: TensorLike, y: TensorLike) -> Tensor:
    """The sum of products of all elements of conj(x) and y.

    Raises:
        ShapeMismatch: they differ in the number of elements.
    """
    return dot(conj(ravel(x)), ravel(y))


@operation
def vecdot(x: TensorLike, y: TensorLike, *, axis: int = -1) -> Tensor:
    """The sum of products of conj(x) and y along an axis; the other axes broadcast.

    Raises:
        ShapeMismatch: the axis differs in size.
    """
    left, right = promoted(x, y)
    for tensor in (left, right):
        checked_axis("vecdot", axis, tensor.ndim)
    left, right = moveaxis(left, axis, -1), moveaxis(right, axis, -1)
    product = matmul(expand_dims(conj(left), left.ndim - 1), expand_dims(right, right.ndim))
    return squeeze(product, (-2, -1))


@operation
def matvec(x: TensorLike, y: TensorLike) -> Tensor:
    """Matrices (..., n, k) times vectors (..., k), whose leading axes broadcast: shape (..., n)."""
    right = as_tensor(y)
    return squeeze(matmul(x, expand_dims(right, right.ndim)), -1)


@operation
def vecmat(x: TensorLike, y: TensorLike) -> Tensor:
    """Conjugates of vectors (..., n) times matrices (..., n, k), whose leading axes broadcast: shape (..., k)."""
    left = conj(x)
    return squeeze(matmul(expand_dims(left, left.ndim - 1), y), -2)


@operation
def matrix_transpose(x: TensorLike) -> Tensor:
    """The last two axes exchanged.

    Raises:
        ShapeMismatch: x has less than two axes.
    """
    return swapaxes(x, -1, -2)


@operation
def kron(x: TensorLike, y: TensorLike) -> Tensor:
    """The Kronecker product: blocks of y, multiplied by each element of x."""
    left, right = promoted(x, y)
    rank = max(left.ndim, right.ndim)
    shapes = [(*[1] * (rank - t.ndim), *t.shape) for t in (left, right)]
    wide = [n for size in shapes[0] for n in (size, 1)], [n for size in shapes[1] for n in (1, size)]
    whole = [a * b for a, b in zip(*shapes, strict=True)]
    return reshape(reshape(left, wide[0]) * reshape(right, wide[1]), whole)


@operation
def cross(
    x: TensorLike, y: TensorLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The cross product of vectors of 3 elements, or of 2, whose third is 0; of two of 2, the third element alone.

    Arguments:
        axisa, axisb: the axes of x and y along which the vectors lie.
        axisc: that of the result.
        axis: one axis in the place of these three.

    Raises:
        ShapeMismatch: vectors have other sizes.
    """
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    left, right = promoted(x, y)
    left, right = moveaxis(left, axisa, -1), moveaxis(right, axisb, -1)
    if not {left.shape[-1], right.shape[-1]} <= {2, 3}:
        raise ShapeMismatch(
            f"cross: vectors of {left.shape[-1]} and {right.shape[-1]} elements were given; expected 2 or 3"
        )
    if left.shape[-1] == right.shape[-1] == 2:
        return left[..., 0] * right[..., 1] - left[..., 1] * right[..., 0]
    left, right = aligned("cross", _of_three(left), _of_three(right))
    product = roll(left, -1, -1) * roll(right, 1, -1) - roll(left, 1, -1) * roll(right, -1, -1)
    return moveaxis(product, -1, axisc)


def _of_three(x: Tensor) -> Tensor:
    return x if x.shape[-1] == 3 else concatenate([x, x[..., :1] * 0], x.ndim - 1)


def multiplied(factors: list[Tensor]) -> Tensor:
    """The product of matrices in the order that takes the fewest multiplications; the ends may be vectors.

    Source: Cormen, Leiserson, Rivest and Stein, "Introduction to Algorithms", section 15.2.
    """
    first, last = factors[0].ndim == 1, factors[-1].ndim == 1
    chain = list(factors)
    chain[0] = expand_dims(chain[0], 0) if first else chain[0]
    chain[-1] = expand_dims(chain[-1], 1) if last else chain[-1]
    sizes = [t.shape[0] for t in chain] + [chain[-1].shape[1]]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(chain))}
    for length in range(1, len(chain)):
        for i in range(len(chain) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        k = best[i, j][1]
        return chain[i] if i == j else matmul(product(i, k), product(k + 1, j))

    whole = product(0, len(chain) - 1)
    return reshape(whole, whole.shape[first : 2 - last])


export_operations(__name__)
