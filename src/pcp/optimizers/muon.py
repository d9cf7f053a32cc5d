"""Muon: matrices take steps along the orthogonal matrix nearest to their momentum; all else takes AdamW's."""

import re
from dataclasses import dataclass, field

from pcp.ir.tree import flatten
from pcp.ops.elementwise import convert, maximum, sqrt
from pcp.ops.linear.products import matmul
from pcp.ops.movement import swapaxes
from pcp.ops.reductions.primitives import sum_
from pcp.optimizers.adamw import AdamW
from pcp.optimizers.base import (
    DecayMask,
    Parameters,
    State,
    is_within,
    rate_at,
    require,
    scalar_type,
    zeros_like,
)
from pcp.tensor import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of x -> a x + b x^3 + c x^5, which brings every singular value in (0, 1] near 1 in five rounds."""

SMALLEST_NORM = 1e-7
_TABLE = re.compile(r"(^|[._])(wte|wpe|\w*embed(ding|dings|s)?\w*|lm_head|head)([._]|$)", re.IGNORECASE)


def hidden_matrices(name: str, shape: tuple[int, ...]) -> bool:
    """The usual mask: matrices, less tables of embeddings and the output's, whose rows are looked up one by one."""
    return len(shape) == 2 and not _TABLE.search(name)


@dataclass(frozen=True, slots=True)
class Muon:
    """Muon for matrices and AdamW for the rest, with one learning rate for both.

    With rate r, decay w, momentum m and the gradient g of a matrix of p rows and q columns,

        b <- m b + (1 - m) g;   d = m b + (1 - m) g;   theta <- (1 - r w) theta - 0.2 sqrt(max(p, q)) r U V^T,

    where d = U S V^T. Five rounds of Newton and Schulz's iteration come near U V^T: its singular values end between 0.7
    and 1.2. The factor 0.2 sqrt(max(p, q)) makes the step as large as AdamW's usually is.

    Arguments:
        rest: takes the steps of all other parameters; its learning rate, or schedule, is that of the matrices too.
        momentum: m, decay of the running gradient b.
        weight_decay: w, of the matrices.
        orthogonal: which parameters, by name and shape, are stepped along U V^T; each has two dimensions.
        rounds: of the iteration.

    State:
        `momentum`, by the name of each such matrix, beside the state of `rest`, which is nested likewise.

    Raises:
        InvalidOptimizer: a number is out of its range, or `orthogonal` names an array that is no matrix.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; the factor: Liu et al., "Muon is
    Scalable for LLM Training" (2502.16982), equation 4.
    """

    rest: AdamW
    momentum: float = 0.95
    weight_decay: float = 0.1
    orthogonal: DecayMask = field(default=hidden_matrices)
    rounds: int = 5

    def __post_init__(self) -> None:
        expected = "a rest that is AdamW, as pcp.optimizers.adamw(1e-3) makes"
        require(isinstance(self.rest, AdamW), self, expected)
        require(is_within(self.momentum, 0, 1), self, "a momentum of at least 0 and below 1")
        require(is_within(self.weight_decay, 0), self, "a weight decay of at least 0")
        require(callable(self.orthogonal), self, "orthogonal that is a function of a name and a shape")
        whole = type(self.rounds) is int and 1 <= self.rounds < 100
        require(whole, self, "rounds that are a whole number, from 1 to 99")

    @property
    def kept(self) -> dict[str, float]:
        """The momentum stands for the gradient, as AdamW's first moment does."""
        return {"momentum": self.momentum, **self.rest.kept}

    def initial_state(self, parameters: Parameters) -> State:
        """A momentum of zero, and what the rest begins with."""
        matrices, others = self._divided(parameters)
        return {"momentum": zeros_like(matrices), **self.rest.initial_state(others)}

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`."""
        matrices, others = self._divided(parameters)
        leaves, tree = flatten(gradients)
        by_name = dict(zip(tree.names(), leaves, strict=True))
        moments = {name: held for name, held in state.items() if name != "momentum"}
        mine = {name: by_name[name] for name in others}
        updated, moments, metrics = self.rest.update(mine, moments, others, step)
        rate = rate_at(self.rest.learning_rate, step, scalar_type(parameters))
        momentum: dict[str, Tensor] = {}
        for name, parameter in matrices.items():
            m, gradient = self.momentum, by_name[name]
            momentum[name] = m * state["momentum"][name] + (1 - m) * gradient
            direction = orthogonalised(m * momentum[name] + (1 - m) * gradient, self.rounds)
            factor = 0.2 * max(parameter.shape) ** 0.5
            taken = convert(rate, parameter.dtype) * (self.weight_decay * parameter + factor * direction)
            updated[name] = parameter - taken
        leaves, tree = flatten(parameters)
        new = tree.unflatten([updated[name] for name in tree.names()])
        return new, {"momentum": momentum, **moments}, metrics

    def _divided(self, parameters: Parameters) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The matrices to be orthogonalised and the other parameters, each by name."""
        leaves, tree = flatten(parameters)
        parts: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
        for name, leaf in zip(tree.names(), leaves, strict=True):
            chosen = bool(self.orthogonal(name, tuple(leaf.shape)))
            expected = f"matrices; orthogonal chose {name}, which has shape {tuple(leaf.shape)}"
            require(not chosen or len(leaf.shape) == 2, self, expected)
            parts[not chosen][name] = leaf
        return parts


def orthogonalised(matrix: Tensor, rounds: int = 5) -> Tensor:
    """A matrix with the same singular vectors, whose singular values are near 1 (those that are not tiny beside its norm).

    Arguments:
        matrix: of shape (p, q), of any floating-point type; its products are taken in that type.
        rounds: of the iteration x <- a x + (b A + c A^2) x with A = x x^T, from matrix / norm(matrix).
    """
    a, b, c = QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = swapaxes(matrix, 0, 1) if tall else matrix
    x = x / maximum(sqrt(sum_(x * x)), SMALLEST_NORM)
    for _ in range(rounds):
        gram = matmul(x, swapaxes(x, 0, 1))
        x = a * x + matmul(b * gram + c * matmul(gram, gram), x)
    return swapaxes(x, 0, 1) if tall else x


muon = Muon
