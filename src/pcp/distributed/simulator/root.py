"""The root of a fleet: a Shepherd that takes the outer step itself."""

from dataclasses import dataclass

from pcp.distributed.coordinator import Coordinator, RunConfig
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.events import OuterStepDone
from pcp.distributed.messages import Blob
from pcp.distributed.simulator import training
from pcp.distributed.simulator.clock import VirtualClock
from pcp.distributed.simulator.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Merged:
    """A contribution that became part of the parameters: when, in which round, whose, of how many batches."""

    time: float
    round: int
    worker_id: int
    batches: int


class Root(Fleet):
    """A Shepherd whose outer step is the simulator's arithmetic.

    Arguments:
        clock: virtual time.
        config: of the run.
        parameter_bytes: size of the parameters.
        merge_seconds: of an outer step.
        delay_seconds, rate: see `Fleet`.
    """

    def __init__(
        self,
        clock: VirtualClock,
        config: RunConfig,
        parameter_bytes: int = training.BYTES,
        merge_seconds: float = 1.0,
        delay_seconds: float = 0.05,
        rate: float = float("inf"),
    ) -> None:
        initial = training.initial_parameters()
        parameters = Blob(training.blob_of(initial).digest, parameter_bytes)
        super().__init__(
            clock, Coordinator.create(config, parameters, None), self.merge_later, delay_seconds, rate
        )
        self.store(initial, parameter_bytes)
        self.merged: list[Merged] = []
        self._merge_seconds, self._parameter_bytes = merge_seconds, parameter_bytes

    @property
    def parameters(self) -> bytes:
        """The parameters after the last outer step."""
        return self.blobs[self.coordinator.state.run.parameters]

    def merge_later(self, effect: RunOuterStep) -> None:
        """Take the outer step, in its time."""
        self.clock.after(self._merge_seconds, lambda: self._merge(effect))

    def _merge(self, effect: RunOuterStep) -> None:
        gradients = [self.blobs[each.pseudo_gradient] for each in effect.contributions]
        parameters = training.outer_step(self.blobs[effect.parameters], gradients)
        stored = self.store(parameters, self._parameter_bytes)
        self.merged += [
            Merged(self.clock.now, effect.round, each.worker_id, each.data.count)
            for each in effect.contributions
        ]
        self.post(OuterStepDone(self.clock.now, effect.round, stored, None))
