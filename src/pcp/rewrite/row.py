"""What a rewrite is: a row with the operation that it begins at, what stands for it instead, and what that does to numbers."""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.tensor import Tensor


class Effect(enum.StrEnum):
    """What a rewrite does to numbers: nothing; another order of sums; or fewer bits."""

    exact = "exact"
    reassociating = "reassociating"
    lowers_precision = "lowers precision"


def strongest(effects: Iterable[Effect]) -> Effect:
    """What comes of several: that of the one that does the most to numbers; of none, nothing."""
    return max(effects, key=list(Effect).index, default=Effect.exact)


Replacement = Sequence[Tensor] | None
"""Tensors in the place of an operation's results; None where the pattern is not there."""
Replace = Callable[[ir.Operation], Replacement]


@dataclass(frozen=True, slots=True)
class Row:
    """One rewrite.

    Arguments:
        name: what it is called in messages and tests.
        root: the name of the operation whose results it replaces, `stablehlo.reduce`.
        effect: what it does to numbers.
        replace: what stands in its place; it returns None before it builds anything.
    """

    name: str
    root: str
    effect: Effect
    replace: Replace


def exact(name: str, root: str, replace: Replace) -> Row:
    """A row that changes no bit."""
    return Row(name, f"stablehlo.{root}", Effect.exact, replace)


def reassociating(name: str, root: str, replace: Replace) -> Row:
    """A row after which sums may be in another order."""
    return Row(name, f"stablehlo.{root}", Effect.reassociating, replace)
