"""A case of the corpus: a function of a framework, how its arguments are drawn, and how near its gradients must be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Maker = Callable[[np.random.Generator], tuple[Any, ...]]
EXACT = 1e-10  # between two computations of one gradient in float64


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that PCP must raise: its type by name, and a regular expression that its message has."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Case:
    """A program whose gradients PCP and the framework that it comes from must agree on.

    Arguments:
        name: unique in its family.
        function: of arrays, or of trees of arrays; for PyTorch it makes a module in float64.
        arguments: draws the arguments. Each of those at the top level holds either only numbers that have gradients or none.
        tolerance: the greatest distance from the framework's gradient, relative to the greatest element of each array.
        wrt: the arguments to differentiate for; if None, all that have gradients.
        order: 2 if the gradient of the gradient is compared as well.
        reference: an equal function that the framework can differentiate, where it cannot differentiate this one.
        refusal: the error that differentiating must end in, if PCP has to refuse.
        note: why the tolerance is not `EXACT`, or why PCP refuses.
    """

    name: str
    function: Callable[..., Any]
    arguments: Maker
    tolerance: float = EXACT
    wrt: tuple[int, ...] | None = None
    order: int = 1
    reference: Callable[..., Any] | None = None
    refusal: Refusal | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if (self.tolerance > EXACT or self.refusal) and not self.note:
            raise ValueError(f"{self.name}: say in `note` why it is not exact")
