"""A witness of a run in pairs: whose offers meet, which batches weights hold, and that the end is their mean."""

from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Contribution
from pcp.distributed.messages import Lease
from pcp.distributed.simulator.arrays.witness import TOLERANCE, ArrayWitness, Vector
from pcp.distributed.simulator.witness import Push, require


class PairsWitness(ArrayWitness):
    """Follows who trained what. Weights are mixed with those of others, so they are no sum of what batches moved them by."""

    def trained(
        self,
        chain: int,
        lease: Lease,
        value: Any,
        held: dict[int, int],  # noqa: ARG002 - there is one version
        anchors: Sequence[Any],  # noqa: ARG002 - there is one version
        batches: Sequence[int],
    ) -> None:
        """See `Witness`."""
        self.trained_batches += len(batches)
        granted = [batch for each in lease.ranges for batch in range(each.start, each.start + each.count)]
        require(
            list(batches) == granted[: len(batches)],
            f"lease {lease.lease_id} holds {granted}, and {batches} were trained",
        )
        self._chains[chain] |= {(batch, 0): 0.0 for batch in batches}
        self._pushes[lease.lease_id] = Push(chain, lease, value)

    def _check_step(
        self,
        round: int,
        fragment: int,
        contributions: Sequence[Contribution],
        pushes: Sequence[Vector],
        parameters: tuple[float, ...],
    ) -> None:
        del fragment  # there is one
        chains = [self._pushes[each.lease_id].chain for each in contributions]
        require(
            len(set(chains)) == len(chains),
            f"round {round} merges weights of one worker twice, those of the middle of its training among them",
        )
        tokens = [each.tokens for each in contributions]
        mean = sum(count / fsum(tokens) * push for count, push in zip(tokens, pushes, strict=True))
        missed = float(np.abs(np.array(parameters) - mean).max())
        require(missed <= TOLERANCE, f"round {round} is not the mean of its pushes: {missed} apart")

    def _check_push(self, lease_id: int, push: Push, error: Vector) -> None:
        """Nothing; see the class."""
