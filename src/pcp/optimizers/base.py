"""What an optimizer is: an initial state, and an update that is traced into the training step."""

import difflib
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DType
from pcp.ir.tree import flatten, map_tree
from pcp.ops.elementwise import convert, minimum, sqrt
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor, as_tensor

NAMES = ("adamw", "adam", "lion", "muon", "adafactor", "sgd", "nesterov")
"""The optimizers of PCP."""

Parameters = Any
"""A nested container of arrays or Tensors."""

State = Any
"""A nested container of arrays or Tensors that the optimizer keeps from step to step."""

Schedule = Callable[[Tensor], Tensor]
"""A learning rate from the number of steps done, both scalar Tensors of one floating-point type."""

DecayMask = Callable[[str, tuple[int, ...]], bool]
"""Whether the parameter of a dotted name and a shape is decayed."""


class InvalidOptimizer(PCPError):
    """An optimizer with a rate, a decay or a limit that makes no sense."""


class Optimizer(Protocol):
    """A rule that makes new parameters from gradients.

    It may have `kept`: by the entry of its state, the factor with which the old value stands in the new one. What is added to
    that is judged where a step is planned within a tolerance: beta m + (1 - beta) g is as wrong as its gradient g. An entry
    that is not named is judged by its change; one with factor 0, by its value.

    One that moves no parameter, and has `moves_parameters` that is False, is given all gradients. Any other is not shown the
    parameters that no gradient reaches: None stands in their places.

    It may have `freezes`, which makes of parameters the names of those for which no gradient shall be computed.
    """

    def initial_state(self, parameters: Parameters) -> State:
        """Arrays to begin with, for parameters that are arrays."""

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """New parameters, new state and scalars worth reporting, as Tensors of the trace in progress."""


def kept_by(optimizer: Optimizer) -> Mapping[str, float]:
    """What an optimizer says of its state; see `Optimizer`."""
    factors: Mapping[str, float] = getattr(optimizer, "kept", {})
    return factors


def require(holds: bool, optimizer: object, expected: str) -> None:
    """Refuse settings; raises InvalidOptimizer."""
    if not holds:
        raise InvalidOptimizer(f"{optimizer}: expected {expected}")


def expect_optimizer(optimizer: object) -> None:
    """Refuse what is no optimizer; raises InvalidOptimizer."""
    if isinstance(optimizer, type) or not all(
        callable(getattr(optimizer, name, None)) for name in ("initial_state", "update")
    ):
        name = optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", "")
        near = difflib.get_close_matches(name.lower(), NAMES, 1)
        named = f"{near[0] if near else 'adamw'}(1e-3)".replace(
            "muon(1e-3)", "muon(pcp.optimizers.adamw(1e-3))"
        )
        raise InvalidOptimizer(
            f"the optimizer is {optimizer!r:.60}; expected one as pcp.optimizers.{named} makes, with initial_state and update"
        )


def is_number(value: object) -> bool:
    """Whether a setting is a real, finite number; a text that shows one, and a boolean, are none."""
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def is_within(value: Any, least: float, below: float = math.inf) -> bool:
    """Whether a setting is a number from `least` on and below another."""
    return is_number(value) and least <= value < below


def rate_is_valid(learning_rate: float | Schedule) -> bool:
    """Whether a learning rate is a schedule, or a finite number of at least 0."""
    if isinstance(learning_rate, type):
        return False
    return callable(learning_rate) or is_within(learning_rate, 0)


def scalar_type(parameters: Parameters) -> DType:
    """The element type for rates and corrections: f64 where a parameter is, else f32."""
    return DType.f64 if any(leaf.dtype == "f64" for leaf in flatten(parameters)[0]) else DType.f32


def rate_at(learning_rate: float | Schedule, step: Tensor, dtype: DType) -> Tensor:
    """The learning rate of a step, as a scalar Tensor of `dtype`."""
    return learning_rate(convert(step, dtype)) if callable(learning_rate) else as_tensor(learning_rate, dtype)


def by_parameter(
    function: Callable[..., tuple[Tensor, ...]], results: int, parameters: Parameters, *others: Parameters
) -> tuple[Parameters, ...]:
    """One container, nested like the parameters, for each of the results of a function.

    Arguments:
        function: of the name of a parameter, it, and the leaves of `others` at its place.
        results: how many it returns.
    """
    leaves, tree = flatten(parameters)
    columns = (tree.names(), leaves, *(flatten(other)[0] for other in others))
    rows = [function(*row) for row in zip(*columns, strict=True)]
    return tuple(tree.unflatten([each[index] for each in rows]) for index in range(results))


def in_full(scalar: DType, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of the element type in which an update is computed: that of the first, the parameter, or `scalar` if it is
    narrower than f32. The coefficients are no bfloat16 numbers: 0.999 would be 1. What is kept is as wide as the parameter."""
    dtype = scalar if tensors[0].dtype.bits < 32 else tensors[0].dtype
    return tuple(convert(each, dtype) for each in tensors)


def matrices(_name: str, shape: tuple[int, ...]) -> bool:
    """The usual mask: matrices are decayed, vectors (biases, normalisations) are not."""
    return len(shape) >= 2


def check_decay(optimizer: Any) -> None:
    """Refuse settings of an optimizer with a learning rate, a weight decay and a mask; raises InvalidOptimizer."""
    require(rate_is_valid(optimizer.learning_rate), optimizer, "a learning rate of at least 0, or a schedule")
    require(is_within(optimizer.weight_decay, 0), optimizer, "a weight decay of at least 0")
    expected = "decays that is a function of the name and the shape of a parameter"
    require(callable(optimizer.decays), optimizer, expected)


def check_betas(optimizer: Any) -> None:
    """Refuse two decays of moments; raises InvalidOptimizer."""
    betas = optimizer.betas
    pair = isinstance(betas, tuple | list) and len(betas) == 2
    expected = "betas of at least 0 and below 1, two of them"
    require(pair and all(is_within(beta, 0, 1) for beta in betas), optimizer, expected)


def zeros_like(parameters: Parameters) -> Parameters:
    """Arrays of zeros with the shapes and element types of the parameters."""
    return map_tree(lambda leaf: np.zeros(leaf.shape, leaf.dtype), parameters)


def global_norm(gradients: Parameters) -> Tensor:
    """The Euclidean norm of all values together, as a scalar f32 Tensor (f64 where a gradient is)."""
    leaves = flatten(gradients)[0]
    wide = [convert(g, "f64" if g.dtype == "f64" else "f32") for g in leaves]
    squares = [sum_(g * g) for g in wide]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    return sqrt(total)


def clip_by_global_norm(gradients: Parameters, limit: float) -> tuple[Parameters, Tensor]:
    """The gradients, scaled down together if their norm exceeds `limit`; and the norm before.

    Raises:
        InvalidOptimizer: the limit is not above 0.

    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013, algorithm 1.
    """
    require(
        is_number(limit) and limit > 0, f"clipping the norm of the gradient to {limit}", "a limit above 0"
    )
    norm = global_norm(gradients)
    factor = minimum(limit / (norm + 1e-6), 1)
    return map_tree(lambda g: g * convert(factor, g.dtype), gradients), norm
