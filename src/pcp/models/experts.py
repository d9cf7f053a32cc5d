"""Feed-forward blocks of which each token takes a few."""

from collections.abc import Callable, Mapping

from pcp.models.config import Experts
from pcp.ops.elementwise import convert
from pcp.ops.indexing.reading import one_hot, take
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import expand_dims, reshape, transpose
from pcp.ops.normalizing import softmax
from pcp.ops.reductions.primitives import sum_, widened
from pcp.ops.sorting.sorting import top_k
from pcp.tensor import Tensor, TensorLike, as_tensor


def experts(
    x: Tensor,
    router: TensorLike,
    weights: Mapping[str, TensorLike],
    row: Experts,
    activation: Callable[[Tensor], Tensor],
) -> Tensor:
    """The sum of what each token's experts give, by their shares of its scores.

    Where fewer are chosen than there are, only these are read, each once for every token that chose it; otherwise all are
    computed for all tokens, which costs count / chosen times the work of what is used.

    Arguments:
        x: shape (rows, chunk, width).
        router: shape (width, count).
        weights: `gate` and `up` of shape (count, width, hidden), `down` of shape (count, hidden, width).

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
    else:
        mixing = sum_(one_hot(chosen, row.count, shares.dtype) * expand_dims(shares, -1), 1)
        hidden = activation(flat @ gate) * (flat @ up)  # (count, tokens, hidden)
        hidden = hidden * convert(expand_dims(transpose(mixing, (1, 0)), -1), x.dtype)
        y = dot_general(hidden, down, ((0, 2), (0, 1)), ((), ()))
    return reshape(y, x.shape)
