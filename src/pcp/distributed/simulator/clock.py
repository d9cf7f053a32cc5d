"""Virtual time: a heap of things to come, performed in order; ties go to what was planned first."""

import heapq
from collections.abc import Callable


class VirtualClock:
    """A clock that jumps from one planned action to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.performed = 0
        self._planned = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan an action."""
        self.at(self.now + seconds, action)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Plan an action at a time; a time that is past means now."""
        heapq.heappush(self._heap, (max(time, self.now), self._planned, action))
        self._planned += 1

    def run(self, until: float, done: Callable[[], bool]) -> None:
        """Perform what is planned, in order, until `done` or until the time is over."""
        while self._heap and self._heap[0][0] <= until and not done():
            self.now, _, action = heapq.heappop(self._heap)
            self.performed += 1
            action()


class MachineClock:
    """The clock of one machine: it never goes back, but it runs fast or slow, and jumps ahead.

    Arguments:
        rate: its seconds in a true second.
    """

    def __init__(self, world: VirtualClock, rate: float = 1.0) -> None:
        self._world = world
        self._rate = rate
        self._since, self._shown = world.now, 0.0

    @property
    def now(self) -> float:
        """What the clock shows."""
        return self._shown + (self._world.now - self._since) * self._rate

    def run_at(self, rate: float) -> None:
        """Let the clock run at another rate from now on."""
        self._since, self._shown, self._rate = self._world.now, self.now, rate

    def jump(self, seconds: float) -> None:
        """Let the clock jump ahead."""
        self._shown += seconds
