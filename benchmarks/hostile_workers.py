"""What hostile workers may push, for studies of merges: each attack sees all honest pushes of a round."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Vectors = Mapping[int, Any]
Attack = Callable[[int, Vectors, dict[int, Any]], Any]
"""From a hostile worker, what everybody would push, and what it kept of the round before, to what it pushes."""


def flipped(factor: float) -> Attack:
    """The push of an honest worker, turned around and made larger."""
    return lambda worker, pushed, _: -factor * np.asarray(pushed[worker])


def not_a_number(worker: int, pushed: Vectors, _: dict[int, Any]) -> Any:
    """NaN everywhere."""
    return np.full_like(np.asarray(pushed[worker]), np.nan)


def stale(worker: int, pushed: Vectors, kept: dict[int, Any]) -> Any:
    """What it pushed in the first round, for ever."""
    return kept.setdefault(worker, np.asarray(pushed[worker]))


def copied(worker: int, pushed: Vectors, _: dict[int, Any]) -> Any:
    """The push of an honest worker."""
    return pushed[max(pushed)] if worker != max(pushed) else pushed[min(pushed)]


def biased(worker: int, pushed: Vectors, _: dict[int, Any]) -> Any:
    """A tenth of the root mean square added to every value: small, and always in one direction."""
    vector = np.asarray(pushed[worker])
    return vector + np.float32(0.1) * np.sqrt(np.mean(vector * vector))


ATTACKS: dict[str, Attack] = {
    "flip": flipped(1),
    "flip10": flipped(10),
    "nan": not_a_number,
    "stale": stale,
    "copied": copied,
    "bias": biased,
}


class Hostile:
    """Lockstep's hook: the first workers are hostile.

    Arguments:
        attack: one of `ATTACKS`.
        count: how many.
    """

    def __init__(self, attack: str, count: int) -> None:
        self._attack, self._count = ATTACKS[attack], count
        self._kept: dict[int, dict[int, Any]] = {}

    def __call__(self, _round: int, fragment: int, pushed: Vectors) -> Vectors:
        """What arrives of a round's pushes."""
        kept = self._kept.setdefault(fragment, {})
        return {
            worker: self._attack(worker, pushed, kept) if worker < self._count else vector
            for worker, vector in pushed.items()
        }
