"""Feed-forward blocks of which each token takes a few."""

from collections.abc import Callable, Mapping

from pcp.ir import DType
from pcp.models.config import Experts
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import convert, minimum, where
from pcp.ops.indexing.blocks import dynamic_slice
from pcp.ops.indexing.reading import one_hot, take
from pcp.ops.indexing.updating import index_update
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import expand_dims, iota, reshape, transpose
from pcp.ops.normalizing import softmax
from pcp.ops.reductions.cumulative import cumsum
from pcp.ops.reductions.primitives import sum_, widened
from pcp.ops.sorting.sorting import argsort, top_k
from pcp.tensor import Tensor, TensorLike, as_tensor

SMALLEST_BLOCK = 16
"""Tokens that an expert is computed for at once, at least."""


def experts(
    x: Tensor,
    router: TensorLike,
    weights: Mapping[str, TensorLike],
    row: Experts,
    activation: Callable[[Tensor], Tensor],
    apart: bool = False,
) -> Tensor:
    """The sum of what each token's experts give, by their shares of its scores.

    Where fewer are chosen than there are, only these are read, each once for every token that chose it; otherwise all are
    computed for all tokens, which costs count / chosen times the work of what is used, or, `apart`, each for its own tokens.

    Arguments:
        x: shape (rows, chunk, width).
        router: shape (width, count).
        weights: `gate` and `up` of shape (count, width, hidden), `down` of shape (count, hidden, width).
        apart: whether each expert is computed for the tokens that chose it alone, in a loop that has no gradient.

    Returns:
        The shape of x.
    """
    flat = reshape(x, (-1, x.shape[-1]))
    shares, chosen = top_k(softmax(widened(flat @ router), -1), row.chosen)
    if row.normalised:
        shares = shares / sum_(shares, -1, keepdims=True)
    tokens, (gate, up, down) = flat.shape[0], (as_tensor(weights[kind]) for kind in ("gate", "up", "down"))
    if tokens * row.chosen < row.count:
        gate, up, down = (
            take(each, chosen, 0) for each in (gate, up, down)
        )  # (tokens, chosen, inner, outer)
        given = reshape(flat, (tokens, 1, 1, -1))
        found = (activation(given @ gate) * (given @ up)) @ down
        y = sum_(reshape(found, (tokens, row.chosen, -1)) * convert(expand_dims(shares, -1), x.dtype), 1)
    elif apart:
        y = _each_for_its_own(flat, shares, chosen, (gate, up, down), activation)
    else:
        mixing = sum_(one_hot(chosen, row.count, shares.dtype) * expand_dims(shares, -1), 1)
        hidden = activation(flat @ gate) * (flat @ up)  # (count, tokens, hidden)
        hidden = hidden * convert(expand_dims(transpose(mixing, (1, 0)), -1), x.dtype)
        y = dot_general(hidden, down, ((0, 2), (0, 1)), ((), ()))
    return reshape(y, x.shape)


def _each_for_its_own(
    flat: Tensor,
    shares: Tensor,
    chosen: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """Tokens in the order of their experts, in blocks of one expert each, as many as there are to compute.

    Source: Gale et al., "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts", 2022, section 4.
    """
    tokens, most = chosen.shape
    count = weights[0].shape[0]
    each = max(tokens * most // count, 1)
    size = min(max(1 << (each - 1).bit_length(), SMALLEST_BLOCK), tokens)
    expert = reshape(chosen, (-1,))
    order = argsort(expert)
    mine = expert == iota((count, 1), 0)  # (count, tokens * most)
    many = sum_(convert(mine, DType.i32), 1)
    blocks = (many + (size - 1)) // size
    begin, ends = cumsum(many) - many, cumsum(blocks)

    def block(number: Tensor, y: Tensor) -> Tensor:
        which = minimum(sum_(convert(ends <= number, DType.i32)), count - 1)
        of_expert, of_block = (take(each, which, 0) for each in (many, ends - blocks))
        inner = (number - of_block) * size + iota((size,))
        taken = take(order, minimum(take(begin, which, 0) + inner, tokens * most - 1), 0)
        rows = taken // most
        share = where(inner < of_expert, take(reshape(shares, (-1,)), taken, 0), 0.0)
        gate, up, down = (
            reshape(dynamic_slice(each, (which, 0, 0), (1, *each.shape[1:])), each.shape[1:])
            for each in weights
        )
        x = take(flat, rows, 0)
        found = ((activation(x @ gate) * (x @ up)) @ down) * convert(expand_dims(share, 1), flat.dtype)
        return index_update(y, rows, found, "add")

    y: Tensor = fori_loop(0, ends[count - 1], block, flat * 0)
    return y
