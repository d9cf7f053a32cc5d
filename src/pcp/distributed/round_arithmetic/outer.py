"""The outer step of a fragment: what was merged moves the global parameters, and the workers are told how."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.merging import Segment
from pcp.distributed.round_arithmetic.fragments import Partition, partition
from pcp.distributed.round_arithmetic.programs import compresses_download, outer_programs, outer_state
from pcp.distributed.round_arithmetic.replica import Vector
from pcp.planning import Plan, plan
from pcp.training.recipes.recipe import Recipe

# The usual names of tables that tokens or positions are looked up in: GPT-2's, those of PyTorch, Flax and Equinox.
_EMBEDDING = re.compile(r"(^|[._])(wte|wpe|\w*embed(ding|dings|s)?\w*)([._]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stepped:
    """A fragment after an outer step.

    Arguments:
        shadow: what the workers hold from now on.
        state: what the next outer step begins with: `optimizer`, and `master` where the download is compressed.
        change: what leads the workers from the last shadow to this one, encoded; None where they are sent the shadow.
    """

    shadow: Vector
    state: dict[str, Any]
    change: dict[str, Any] | None


class OuterSteps:
    """The Shepherd's arithmetic beside its merge, for every fragment: arrays in, arrays out.

    Arguments:
        algorithm: how it is merged.

    Raises:
        TooManyFragments: the parameters are fewer arrays than the algorithm has fragments.
        OutOfMemory: an outer step does not fit in the device's memory.
    """

    def __init__(self, recipe: Recipe, algorithm: Algorithm, device: str) -> None:
        self.partition: Partition = partition(recipe.parameters, algorithm.fragments)
        self._recipe = recipe
        self._algorithm = algorithm
        self._plans: dict[str, Plan] = {
            name: plan(program, device=device) for name, program in outer_programs(recipe, algorithm).items()
        }

    def segments(self, fragment: int) -> tuple[Segment, ...]:
        """The arrays of a fragment, as its merge takes them."""
        return tuple(
            Segment(part.name, part.spec.size, embedding=_EMBEDDING.search(part.name) is not None)
            for part in self.partition.fragments[fragment]
        )

    def first(self, fragment: int) -> tuple[Vector, dict[str, Any]]:
        """The shadow and the outer state of a fragment before the first round."""
        shadow = self.partition.vectors(self._recipe.parameters)[fragment]
        optimizer = outer_state(self._recipe, self._algorithm, self.partition, fragment)
        master = {"master": shadow} if compresses_download(self._algorithm) else {}
        return shadow, {"optimizer": optimizer, **master}

    def decoded(self, fragment: int, payload: Any) -> Vector:
        """What a worker pushed."""
        return self._plans[f"decode.{fragment}"].run(payload)

    def take(
        self,
        fragment: int,
        shadow: Vector,
        state: dict[str, Any],
        mean: Vector,
        step: int,
        share: float,
    ) -> Stepped:
        """One outer step.

        The server keeps what the download codec loses: it stays in the difference of master and shadow.

        Arguments:
            fragment: of the parameters.
            shadow: what the workers hold.
            state: what `first` or the last outer step of the fragment left.
            mean: merged pushes.
            step: steps done before this round, for the schedule of the run's own optimizer.
            share: of H inner steps behind the merge; see `share_of_steps`.
        """
        master = state.get("master", shadow)
        master, optimizer = self._plans[f"outer.{fragment}"].run(
            master, state["optimizer"], mean, np.int32(step), np.float32(share)
        )
        if not compresses_download(self._algorithm):
            return Stepped(master, {"optimizer": optimizer}, None)
        change = self._plans[f"change.{fragment}"].run(master, shadow)
        nearer = self._plans[f"receive.{fragment}"].run(shadow, change)
        return Stepped(nearer, {"optimizer": optimizer, "master": master}, change)

    def parameters(self, shadows: Sequence[Vector]) -> Any:
        """The nested parameters that the workers hold, on the device."""
        return self._plans["parameters"].run(tuple(shadows))
