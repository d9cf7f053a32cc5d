"""What every merge of a fragment's contributions has in common: what goes in, what comes out, and what is refused."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends import Device
from pcp.errors import PCPError

# The values of a fragment: leaves in tree order, raveled, concatenated; f32 of shape (n,). NumPy's or the device's.
Vector = Any
# Gives a contribution's values, decoded; may be called more than once, so that no more than one need be in memory.
Loader = Callable[[], Vector]
State = Mapping[str, Any]

NOT_FINITE = "it holds infinities or NaN, or is too long for f32"


class InvalidSegments(PCPError):
    """Leaves that a merge cannot be made for."""


class NothingToMerge(PCPError):
    """A merge without contributions."""


class InvalidWeights(PCPError):
    """Weights that are no weights of these contributions."""


class NothingUsable(PCPError):
    """A merge of which every contribution was refused."""


class WrongLength(PCPError):
    """A contribution that has not the fragment's number of values."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A leaf in the flat vector of its fragment.

    Arguments:
        name: of the leaf.
        size: how many values it has.
        embedding: whether it is a table of which each batch touches only some rows.
    """

    name: str
    size: int
    embedding: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a merge made of a contribution.

    Arguments:
        weight: its share in the mean; the shares of all add up to one.
        reason: why it counts for less than it was given; empty where it does not.
    """

    weight: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged fragment.

    Arguments:
        mean: what the outer optimizer takes for the gradient; f32 of shape (n,).
        verdicts: one for each contribution, in their order.
        state: what the next merge of this fragment begins with.
    """

    mean: Vector
    verdicts: tuple[Verdict, ...]
    state: State


class Merge(ABC):
    """A merge that is compiled for the leaves of one fragment.

    Arguments:
        segments: the leaves, in the order of the flat vector.

    Raises:
        InvalidSegments: there are none, or one is empty.
    """

    def __init__(self, segments: Sequence[Segment], device: Device | str | None = None) -> None:
        if not segments or any(segment.size < 1 for segment in segments):
            sizes = [segment.size for segment in segments]
            raise InvalidSegments(f"segments of sizes {sizes}; a fragment needs one leaf or more, none empty")
        self.segments = tuple(segments)
        self.size = sum(segment.size for segment in segments)
        self.device = device

    def initial_state(self) -> State:
        """What the first merge of a run begins with: arrays by name; empty for a merge that remembers nothing."""
        return {}

    def __call__(
        self,
        loaders: Sequence[Loader],
        weights: Sequence[float],
        state: State | None = None,
    ) -> Merged:
        """Merge a round's contributions, reduced in the given order.

        Arguments:
            loaders: of the contributions.
            weights: what each would count for if all were honest, above zero, of any sum. They come from the leases,
                never from what a worker says of itself.
            state: what the last merge of this fragment returned; None for the first.

        Raises:
            NothingToMerge: there is no contribution.
            InvalidWeights: there are more or fewer weights than contributions, or one is not above zero.
            WrongLength: a contribution has more or fewer values than the fragment.
            NothingUsable: every contribution was refused.
        """
        if not loaders:
            raise NothingToMerge("no contribution was given; a merge needs one or more")
        if len(weights) != len(loaders):
            raise InvalidWeights(
                f"{len(loaders)} contributions with {len(weights)} weights; expected one for each"
            )
        if not all(math.isfinite(weight) and weight > 0 for weight in weights):
            raise InvalidWeights(f"weights {list(weights)}; each must be finite and above zero")
        return self.merge(
            [_checked(loader, index, self.size) for index, loader in enumerate(loaders)],
            np.asarray(weights, np.float64),
            self.initial_state() if state is None else state,
        )

    @abstractmethod
    def merge(self, loaders: Sequence[Loader], weights: np.ndarray, state: State) -> Merged:
        """As `__call__`, with arguments that were checked."""


def _checked(loader: Loader, index: int, size: int) -> Loader:
    def load() -> Vector:
        vector = loader()
        if tuple(vector.shape) != (size,):
            raise WrongLength(
                f"contribution {index} has shape {tuple(vector.shape)}; the fragment's is ({size},)"
            )
        return vector

    return load


def verdicts(share: np.ndarray, finite: np.ndarray) -> tuple[Verdict, ...]:
    """Of a merge that leaves out nothing but what is not finite."""
    return tuple(
        Verdict(float(each), "" if usable else NOT_FINITE) for each, usable in zip(share, finite, strict=True)
    )


def shares(weights: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """The weights of the usable contributions, divided by their sum; zero for the others.

    Raises:
        NothingUsable: none is.
    """
    if not usable.any():
        raise NothingUsable(
            f"none of the {len(usable)} contributions is usable; the training has diverged, or every worker is hostile"
        )
    kept = np.where(usable, weights, 0.0)
    divided: np.ndarray = kept / kept.sum()
    return divided
