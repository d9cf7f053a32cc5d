"""What the operator asks of a running Shepherd: files in the run's folder, which it looks for all the time.

A worker is dropped by revoking its key, as `pcp keys revoke` does.
"""

import asyncio
from collections.abc import Callable

from pcp.distributed.coordinator import State
from pcp.distributed.shepherd.reports import Record, totals_record
from pcp.distributed.wire import Statistics
from pcp.training.run_folder import RunFolder

POLL_SECONDS = 0.25
TOTALS_SECONDS = 5.0
"""Time between two records of what moved and was refused; who reads them knows thereby that the Shepherd lives."""


class Requests:
    """The files of one run. A pause lasts over restarts; a request to stop is fulfilled once.

    Arguments:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._paused, self._stop = folder.path / "paused", folder.path / "stop"

    @property
    def paused(self) -> bool:
        """Whether nothing new is to be given to workers; what they have may be delivered."""
        return self._paused.exists()

    def pause(self) -> None:
        """Ask for a pause."""
        self._paused.touch()

    def resume(self) -> None:
        """Ask to go on."""
        self._paused.unlink(missing_ok=True)

    def stop(self) -> None:
        """Ask the Shepherd to end as after SIGTERM; what workers have not delivered is trained again after the next start."""
        self._stop.touch()

    def take_stop(self) -> bool:
        """Whether to end; the request is then fulfilled."""
        try:
            self._stop.unlink()
        except FileNotFoundError:
            return False
        return True


async def attend(
    requests: Requests,
    state: State,
    statistics: Statistics,
    stop: Callable[[], None],
    report: Callable[[Record], None],
    now: Callable[[], float],
) -> None:
    """Do what the operator asks, and tell what moved and was refused, until it is cancelled.

    Arguments:
        requests: of the operator.
        state: of the coordinator.
        statistics: of the wire.
        stop: ends the Shepherd.
        report: receives records.
        now: the coordinator's clock.
    """
    requests.take_stop()  # one that nobody was there to fulfil
    said, told_at = False, now() - TOTALS_SECONDS
    try:
        while True:
            if requests.take_stop():
                stop()
            if now() - told_at >= TOTALS_SECONDS or state.paused is not said:
                said, told_at = state.paused, now()
                report(totals_record(statistics, state))
            await asyncio.sleep(POLL_SECONDS)
    finally:
        report(totals_record(statistics, state))
