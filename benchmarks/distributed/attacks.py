"""What hostile workers send in place of their contributions, for simulations and studies of merges.

An attack is called with the round, the fragment and what every worker pushed, and returns what arrives of each.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import numpy as np

from pcp.distributed.merging.base import Vector
from pcp.errors import PCPError

Attack = Callable[[int, int, Mapping[int, Vector]], Mapping[int, Vector]]

HONEST_PUSHES = 2  # a stale worker's, before the one that it repeats
BIAS = 0.3  # of the root mean square of a contribution


class UnknownAttack(PCPError):
    """A name that no attack has."""


def attack(name: str, hostile: Collection[int]) -> Attack:
    """An attack by some workers.

    Arguments:
        name: one of `ATTACKS`.
        hostile: numbers of the workers that attack; those that push nothing in a round send nothing.

    Raises:
        UnknownAttack: there is none of that name.
    """
    if name not in ATTACKS:
        raise UnknownAttack(f'there is no attack "{name}"; choose one of {", ".join(sorted(ATTACKS))}')
    return ATTACKS[name](frozenset(hostile))


def _each(changed: Callable[[np.ndarray], np.ndarray]) -> Callable[[frozenset[int]], Attack]:
    """An attack that looks at nothing but the worker's own contribution."""

    def begin(hostile: frozenset[int]) -> Attack:
        def send(round: int, fragment: int, pushed: Mapping[int, Vector]) -> Mapping[int, Vector]:  # noqa: ARG001
            return {
                worker: changed(np.asarray(vector)) if worker in hostile else vector
                for worker, vector in pushed.items()
            }

        return send

    return begin


def _stale(hostile: frozenset[int]) -> Attack:
    """Repeat an early push of the same fragment for ever."""
    counts: dict[tuple[int, int], int] = {}
    kept: dict[tuple[int, int], np.ndarray] = {}

    def send(round: int, fragment: int, pushed: Mapping[int, Vector]) -> Mapping[int, Vector]:  # noqa: ARG001
        sent = dict(pushed)
        for worker in hostile & set(pushed):
            place = worker, fragment
            counts[place] = counts.get(place, 0) + 1
            if counts[place] <= HONEST_PUSHES + 1:
                kept[place] = np.array(pushed[worker])
            sent[worker] = kept[place]
        return sent

    return send


def _copied(hostile: frozenset[int]) -> Attack:
    """Send what an honest worker sends: the last of them in order."""

    def send(round: int, fragment: int, pushed: Mapping[int, Vector]) -> Mapping[int, Vector]:  # noqa: ARG001
        honest = sorted(set(pushed) - hostile)
        if not honest:
            return pushed
        return {
            worker: pushed[honest[-1]] if worker in hostile else vector for worker, vector in pushed.items()
        }

    return send


def _biased(vector: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.mean(np.square(vector, dtype=np.float64)))
    return np.asarray(vector + BIAS * size, np.float32)


ATTACKS: Mapping[str, Callable[[frozenset[int]], Attack]] = MappingProxyType(
    {
        "sign flip": _each(lambda vector: -vector),
        "sign flip x10": _each(lambda vector: -10 * vector),
        "NaN": _each(lambda vector: np.full_like(vector, np.nan)),
        "stale": _stale,
        "copied": _copied,
        "constant bias": _each(_biased),
    }
)
