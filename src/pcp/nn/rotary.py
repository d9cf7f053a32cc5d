"""Rotary position embeddings: queries and keys turned by an angle that grows with their place."""

import math

from pcp.ir import DType
from pcp.ops.elementwise import convert, cos, exp, sin
from pcp.ops.movement import concatenate, expand_dims, iota, reshape, split, stack
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, explained


@explained
def rotary(
    x: TensorLike,
    positions: TensorLike | None = None,
    base: float = 10000.0,
    interleaved: bool = False,
    speeds: TensorLike | None = None,
) -> Tensor:
    """Pairs of features turned by position / base^(2 i / width), so that products of two depend on their distance.

    Arguments:
        x: queries or keys, shape (..., length, heads, width); the width is even.
        positions: shape (length,) or (..., length); None means 0, 1, 2, ...
        base: the slowest angle is about position / base.
        interleaved: whether features 2i and 2i + 1 are a pair (as in the paper); otherwise i and i + width / 2 are.
        speeds: radians a place of each pair, shape (..., width / 2), which broadcasts to the angles (..., length, width / 2);
            None: those of the base.

    Returns:
        The shape and element type of x; angles are computed in f32 at least.

    Raises:
        ShapeMismatch: x has less than three axes, or an odd width.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34.
    """
    tensor = as_tensor(x)
    if tensor.ndim < 3 or tensor.shape[-1] % 2:
        raise ShapeMismatch(
            f"rotary: shape {tensor.shape} was given; expected (..., length, heads, width) with an even width"
        )
    half = tensor.shape[-1] // 2
    wide = DType.f64 if tensor.dtype is DType.f64 else DType.f32
    places = iota((tensor.shape[-3],)) if positions is None else as_tensor(positions)
    if speeds is None:
        turning = exp(iota((half,), 0, wide) * (-math.log(base) / max(half, 1)))
    else:
        turning = convert(as_tensor(speeds), wide)
    # (..., length, 1, half)
    angles = expand_dims(expand_dims(convert(places, wide), places.ndim) * turning, -2)
    cosine, sine = cos(angles), sin(angles)
    whole = convert(tensor, wide)
    if interleaved:
        pairs = reshape(whole, (*tensor.shape[:-1], half, 2))
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = split(whole, 2, -1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    joined = reshape(stack(turned, -1), tensor.shape) if interleaved else concatenate(turned, -1)
    return convert(joined, tensor.dtype)
