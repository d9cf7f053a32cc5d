"""The inner state of one worker: arrays in, arrays out, with no wire and no blobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pcp.distributed.messages import Outcome
from pcp.errors import PCPError

Vector = Any
"""A flat f32 array on a device or in NumPy: the values of one fragment."""


class ReplicaMisused(PCPError):
    """A worker's inner state is asked for something out of turn: a step before it began, a push before the last is settled."""


class Runs(Protocol):
    """A compiled program."""

    def run(self, *arguments: Any) -> Any:
        """Its results."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A push.

    Arguments:
        payload: what is sent.
        error: what it encodes.
        left: what of that the payload does not say.
    """

    payload: dict[str, Any]
    error: Vector
    left: Vector


@dataclass(frozen=True, slots=True)
class Encoding:
    """A push that is to be made from what was there when it began; training may go on meanwhile.

    Arguments:
        plan: the program.
        arguments: what it takes.
    """

    plan: Runs
    arguments: tuple[Vector, ...]

    def run(self) -> Encoded:
        """The push; to be called in any thread."""
        payload, error, left = self.plan.run(*self.arguments)
        return Encoded(dict(payload), error, left)


class Replica:
    """Parameters, moments, anchors and residuals of one worker.

    In a lease, the order is: `fresh` or `adopt` for what holds from its first step; `begin`; `step` for each batch, with
    `adopt` between; `finish`; `push`. The answer to the push comes to `settle`, at any time before the next push of that
    fragment.

    Arguments:
        plans: the worker's programs, compiled, by the names that `programs.py` gives.
    """

    def __init__(self, plans: Mapping[str, Runs]) -> None:
        self._plans = plans
        self._fragments = sum(name.startswith("push.") for name in plans)
        self._state: Any = None
        self._anchors: list[Vector] = []  # the versions adopted last
        self._references: list[Vector] = []  # where the next push counts from
        self._residuals: list[Vector] = []
        self._unpushed: set[int] = set()  # since they were adopted
        self._unsettled: dict[int, tuple[Vector, Vector]] = {}
        self._begun_pushes: set[int] = set()
        self._held: dict[int, Vector] = {}

    @property
    def state(self) -> Any:
        """The state of the training step: `params`, `optimizer` and `step`; None before `fresh`. Not to be donated."""
        return self._state

    def fresh(self, vectors: Sequence[Vector], step: int) -> None:
        """Begin from global parameters with residuals of zero; the moments of an earlier beginning stay.

        Arguments:
            vectors: every fragment.
            step: inner steps done before, for the schedule of the learning rate.
        """
        parameters = tuple(vectors)
        held, self._state = self._state, None
        if held is None:
            self._state = self._plans["start"].run(parameters, np.int32(step))
        else:
            self._state = self._plans["restart"].run(held, parameters, np.int32(step))
        self._anchors, self._references = list(parameters), list(parameters)
        self._residuals = [np.zeros(vector.shape, np.float32) for vector in parameters]
        self._unpushed = set(range(self._fragments))
        self._unsettled.clear()
        self._begun_pushes.clear()
        self._held.clear()

    def begin(self, step: int, fragments: Sequence[int] = ()) -> None:
        """Begin the batches of a lease.

        Arguments:
            step: inner steps done before, for the schedule of the learning rate.
            fragments: the only ones that these batches may move; none means all.
        """
        self._state = self._begun() | {"step": np.int32(step)}
        self._held = {
            fragment: self._flat(fragment)
            for fragment in range(self._fragments)
            if fragments and fragment not in fragments
        }

    def count(self, step: int) -> None:
        """Go on from another step number, for the schedule of the learning rate."""
        self._state = self._begun() | {"step": np.int32(step)}

    def step(self, batch: Any) -> dict[str, Any]:
        """Train on one batch; returns its metrics, which may still be under way on the device."""
        self._begun()
        self._state, metrics = self._consume("step", batch)
        return dict(metrics)

    def resume(self, state: Any) -> None:
        """Go on from a state that the training step led to elsewhere, from `state`."""
        self._begun()
        self._state = state

    def adopt(self, fragment: int, vector: Vector) -> None:
        """Mix a newer version of a fragment into the worker's own; its next change of it counts from there.

        Where it was not pushed since it was last adopted, because a round closed without this worker, what it was moved by
        since then goes into the residual, and so into the next push.
        """
        name = f"mix.{fragment}" if f"mix.{fragment}" in self._plans else f"put.{fragment}"
        self._begun()
        unpushed = fragment in self._unpushed
        before = self._held.get(fragment, self._flat(fragment) if unpushed else None)
        if fragment in self._held:
            moved = self._flat(fragment)
            self._put(fragment, self._held[fragment])
            self._state = self._consume(name, vector)
            self._held[fragment] = self._flat(fragment)
            self._put(fragment, moved)
        self._state = self._consume(name, vector)
        if unpushed:
            after = self._held.get(fragment, self._flat(fragment))
            # By NumPy: arrays of some backends know no arithmetic.
            movement = np.asarray(self._references[fragment]) - np.asarray(before)
            # The share of it that the next push counts by itself.
            counted = np.asarray(vector) - np.asarray(after)
            self._residuals[fragment] = np.asarray(self._residuals[fragment]) + (movement - counted)
        self._unpushed.add(fragment)
        self._anchors[fragment] = self._references[fragment] = vector

    def weights(self, fragment: int) -> Vector:
        """The worker's own parameters of a fragment, as they are now."""
        self._begun()
        return self._flat(fragment)

    def place(self, fragment: int, vector: Vector) -> None:
        """Put other parameters of a fragment in their place; where the next push counts from stays."""
        self._begun()
        self._put(fragment, vector)

    def received(self, fragment: int, change: Any) -> Vector:
        """The version after the one adopted last, from the encoded change."""
        self._begun()
        return self._plans[f"receive.{fragment}"].run(self._anchors[fragment], change)

    def finish(self) -> None:
        """End the batches of a lease: fragments that they may not move return to where they were."""
        for fragment, vector in self._held.items():
            self._put(fragment, vector)
        self._held = {}

    def push(self, fragment: int) -> dict[str, Any]:
        """What the worker has to say about a fragment since it last pushed or adopted it, encoded.

        Raises:
            ReplicaMisused: see `begin_push`.
        """
        return self.end_push(fragment, self.begin_push(fragment).run())

    def begin_push(self, fragment: int) -> Encoding:
        """Begin a push, which may be made while the next batches are trained; `end_push` must be called before the next one.

        Raises:
            ReplicaMisused: the last push of it is not settled, or the batches of a lease were not finished.
        """
        state = self._begun()
        if self._begun_pushes:
            raise ReplicaMisused(
                f"fragment {fragment} is to be pushed, but a push is being made; call end_push first"
            )
        if fragment in self._unsettled or self._held:
            what = (
                "the last one is not settled" if fragment in self._unsettled else "the lease is not finished"
            )
            raise ReplicaMisused(
                f"fragment {fragment} is to be pushed, but {what}; call settle or finish first"
            )
        gradient = self._plans.get(f"gradient.{fragment}")
        pushed = None if gradient is None else gradient.run(state)
        theta = self._flat(fragment)
        encoding = Encoding(
            self._plans[f"push.{fragment}"],
            (theta if pushed is None else pushed, self._references[fragment], self._residuals[fragment]),
        )
        # Counted from here on, whatever comes of the push: what it held is now in the payload or in the residual.
        self._references[fragment] = theta
        self._unpushed.discard(fragment)
        self._begun_pushes.add(fragment)
        if "clear" in self._plans:
            self._state = self._consume("clear")
        return encoding

    def end_push(self, fragment: int, encoded: Encoded) -> dict[str, Any]:
        """Take what was begun with `begin_push`; returns its payload."""
        self._begun_pushes.discard(fragment)
        self._unsettled[fragment] = (encoded.error, encoded.left)
        return encoded.payload

    def settle(self, fragment: int, outcome: Outcome) -> None:
        """Learn what became of a push.

        Arguments:
            fragment: that was pushed.
            outcome: admitted; carried, so that all of it goes into the next push; or refused, after which only `fresh` helps.
        """
        if fragment not in self._unsettled:
            raise ReplicaMisused(f"no push of fragment {fragment} waits to be settled; push it first")
        error, left = self._unsettled.pop(fragment)
        self._residuals[fragment] = error if outcome is Outcome.CARRIED else left

    def inner(self) -> dict[str, Any]:
        """Everything that decides what the worker does next: nested arrays, with places only for what there is."""
        return {
            "state": self._begun(),
            "anchors": _numbered(self._anchors),
            "references": _numbered(self._references),
            "residuals": _numbered(self._residuals),
            "unsettled": {
                str(fragment): {"error": error, "left": left}
                for fragment, (error, left) in sorted(self._unsettled.items())
            },
            "unpushed": {str(fragment): np.int32(1) for fragment in sorted(self._unpushed)},
            "held": {str(fragment): vector for fragment, vector in sorted(self._held.items())},
        }

    def restore(self, inner: Mapping[str, Any]) -> None:
        """Take over what `inner` returned, of this replica or of another."""
        self._state = inner["state"]
        self._anchors, self._references, self._residuals = (
            [inner[name][str(number)] for number in range(self._fragments)]
            for name in ("anchors", "references", "residuals")
        )
        self._unpushed = {int(fragment) for fragment in inner["unpushed"]}
        self._unsettled = {
            int(fragment): (each["error"], each["left"]) for fragment, each in inner["unsettled"].items()
        }
        self._held = {int(fragment): vector for fragment, vector in inner["held"].items()}

    def _begun(self) -> Any:
        if self._state is None:
            raise ReplicaMisused(
                "the worker has no inner state yet, or a program failed in it; call fresh first"
            )
        return self._state

    def _consume(self, name: str, *arguments: Any) -> Any:
        """Run a program that takes the state over: where it fails, none is left."""
        held, self._state = self._state, None
        return self._plans[name].run(held, *arguments)

    def _flat(self, fragment: int) -> Vector:
        return self._plans[f"flat.{fragment}"].run(self._state)

    def _put(self, fragment: int, vector: Vector) -> None:
        self._state = self._consume(f"put.{fragment}", vector)


def _numbered(vectors: Sequence[Vector]) -> dict[str, Vector]:
    return {str(number): vector for number, vector in enumerate(vectors)}
