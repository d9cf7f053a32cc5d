"""A witness of a run on arrays, in float64: what each push says, what each merge comes to, and what a codec may lose."""

from collections.abc import Sequence
from itertools import groupby
from math import fsum
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.distributed.simulator.arrays.recipe import EMBEDDING, movement, recipe
from pcp.distributed.simulator.witness import InvariantViolated, Push, Witness, require

Vector = Any
"""float64, flat; a version of a fragment is a tuple of its numbers, for those are compared bit for bit."""

TOLERANCE = 1e-4  # of the numbers of a run, which are below 100: that of a few hundred roundings to f32
# Of the largest number of a block, by which int4 may miss another: a scale, rounded up to bf16.
INT4_SHARE = 1.02 / 8


class ArrayWitness(Witness):
    """Follows the arrays of one run.

    Arguments:
        config: its plan.
        outer: decodes pushes, and knows the fragments.
    """

    def __init__(self, config: RunConfig, outer: OuterSteps) -> None:
        self._outer = outer
        super().__init__(config)
        self._depends = False
        self._masters = [np.array(each) for each in self._masters]
        self._velocities: list[Vector] = [np.zeros_like(each) for each in self._masters]

    def value_of_first(self, fragment: int) -> tuple[float, ...]:
        """See `Witness`."""
        return self.value_of(self._outer.partition.vectors(recipe().parameters)[fragment])

    def value_of(self, vector: Any) -> tuple[float, ...]:
        """See `Witness`."""
        return tuple(np.asarray(vector, np.float64).tolist())

    def value_of_push(self, fragment: int, payload: dict[str, Any], error: Any) -> Vector:
        """See `Witness`; a codec loses no more than it may."""
        value = np.asarray(self._outer.decoded(fragment, payload), np.float64)
        _check_codec(
            self._algorithm.upload, np.asarray(error, np.float64), value, f"a push of fragment {fragment}"
        )
        return value

    def value_of_batch(self, batch: int, fragment: int, anchor: Any) -> Vector:  # noqa: ARG002 - wherever it stood
        """See `Witness`."""
        return movement(self._outer.partition, batch)[fragment]

    def _check_step(
        self,
        round: int,
        fragment: int,
        contributions: Sequence[Contribution],
        pushes: Sequence[Vector],
        parameters: tuple[float, ...],
    ) -> None:
        algorithm, stepped = self._algorithm, np.array(parameters)
        rate, momentum = algorithm.outer_learning_rate, algorithm.outer_momentum
        weights = self._weights(contributions)
        share = min(
            1.0,
            fsum(w * c.steps for w, c in zip(weights, contributions, strict=True)) / algorithm.inner_steps,
        )
        master, velocity = self._masters[fragment], self._velocities[fragment]
        summed = self._summed(contributions, weights, pushes)
        if algorithm.merge == "default":  # what it came to, from where it led
            ahead = share * momentum
            mean = ((master - stepped) / rate - ahead * momentum**share * velocity) / (1 + ahead)
            self._check_clipped(round, fragment, mean, [push for _, push in summed])
        else:
            mean = self._merged(fragment, summed)
        velocity = momentum**share * velocity + mean
        expected = master - rate * (mean + share * momentum * velocity)
        held = np.array(self._versions[fragment][-1])
        _check_codec(
            algorithm.download, expected - held, stepped - held, f"round {round}, fragment {fragment}"
        )
        self._masters[fragment], self._velocities[fragment] = expected, velocity

    def _weights(self, contributions: Sequence[Contribution]) -> list[float]:
        by_pace = self._algorithm.late == "carry"
        amounts = [each.tokens * (each.tokens / each.steps if by_pace else 1) for each in contributions]
        return [amount / fsum(amounts) for amount in amounts]

    def _summed(
        self, contributions: Sequence[Contribution], weights: Sequence[float], pushes: Sequence[Vector]
    ) -> list[tuple[float, Vector]]:
        """Weights and movements; where workers train on between pushes, all pushes of one are one movement."""
        whole = list(zip(contributions, weights, pushes, strict=True))
        if not self._algorithm.delay:
            return [(weight, push) for _, weight, push in whole]
        movements = []
        for _, group in groupby(whole, lambda each: each[0].worker_id):
            own = list(group)
            movements.append((fsum(weight for _, weight, _ in own), sum(push for *_, push in own)))
        return movements

    def _merged(self, fragment: int, summed: Sequence[tuple[float, Vector]]) -> Vector:
        """The mean; of a radial merge, the mean norm of each array along the mean direction, if there is one."""
        parts = []
        for part in self._outer.partition.fragments[fragment]:
            own = [(weight, push[part.start : part.stop]) for weight, push in summed]
            direction = sum(weight * _unit(array) for weight, array in own)
            cancels = np.linalg.norm(direction) < 1e-6
            if self._algorithm.merge == "mean" or part.name == EMBEDDING or cancels:
                parts.append(sum(weight * array for weight, array in own))
                continue
            parts.append(fsum(weight * np.linalg.norm(array) for weight, array in own) * _unit(direction))
        return np.concatenate(parts)

    def _check_clipped(self, round: int, fragment: int, mean: Vector, pushes: Sequence[Vector]) -> None:
        """Object to a merge of which an array is longer than that of every push."""
        for part in self._outer.partition.fragments[fragment]:
            place = slice(part.start, part.stop)
            length, longest = np.linalg.norm(mean[place]), max(np.linalg.norm(push[place]) for push in pushes)
            require(
                bool(length <= longest + 10 * TOLERANCE),
                f"round {round} merges {part.name} to the length {length:.4f}, of pushes of at most {longest:.4f}",
            )

    def _check_push(self, lease_id: int, push: Push, error: Vector) -> None:
        # What a worker was moved by while its push was merged is partly or wholly dropped.
        if self._algorithm.delay:
            return
        what = f"the push of lease {lease_id}, beside what is booked for it"
        _check_codec(self._algorithm.upload, error, push.value, what)

    def _check_all(self, residuals: dict[int, Any]) -> None:
        """Nothing: merges are means, so what they come to is no sum of what was moved; each one was checked."""


def _unit(vector: Vector) -> Vector:
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def _check_codec(codec: str, encoded: Vector, decoded: Vector, what: str) -> None:
    """Object to numbers that are further from those that were encoded than their codec may bring them.

    Arguments:
        what: they are, in words.

    Raises:
        InvariantViolated: it does.
    """
    largest, missed = np.abs(encoded).max(), np.abs(decoded - encoded)
    match codec:
        case "f32":
            allowed = 0.0
        case "int4":
            allowed = INT4_SHARE * largest
        case _:  # the two magnitudes of top-k are means, so their sum is that of what was given
            allowed = largest
            kept, whole = np.abs(decoded).sum(), np.abs(encoded).sum()
            _require(
                (np.abs(kept - whole) <= whole / 64 + TOLERANCE) & (decoded * encoded >= -TOLERANCE),
                codec,
                encoded,
                decoded,
                what,
            )
    _require(missed <= allowed + TOLERANCE, codec, encoded, decoded, what)


def _require(holds: Vector, codec: str, encoded: Vector, decoded: Vector, what: str) -> None:
    if not holds.all():  # arrays are slow to write down
        raise InvariantViolated(f"{what}: {decoded} by {codec}, of {encoded}")
