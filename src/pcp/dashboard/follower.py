"""A run followed from outside: its settings and its file of metrics say all, whether it is live, finished or dead."""

import contextlib
import shutil
import time

from pcp.training.display.fleet import Fleet
from pcp.training.display.metrics import Tail
from pcp.training.recipes.config import is_in_pairs
from pcp.training.run_folder import RunFolder
from pcp.training.running import life_of

ROOM_BYTES = 1 << 20
"""With less that is free a disk counts as full."""


class Follower:
    """Keeps a `Fleet` up to date with the files of a run. It takes nothing from the run's processes.

    Arguments:
        folder: of the run.

    Raises:
        NotARun: its settings cannot be found.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._file = folder.metrics_file
        self._tail = Tail(self._file)
        self._folder = folder
        config = folder.config()
        self.fleet = Fleet(folder.path.resolve().name, config.steps, in_pairs=is_in_pairs(config))

    def update(self) -> Fleet:
        """The run as its file tells it by now.

        Raises:
            MetricsCorrupt: a line of the file is no record.
        """
        for record in self._tail.read():
            # A run in one process stamps no times: all there is to say of it is when it wrote last.
            at = record["time"] if "time" in record else self._file.stat().st_mtime
            self.fleet.take(record, at)
        if (life := life_of(self._folder)) is not None:
            self.fleet.alive, self.fleet.complete, self.fleet.ended = life.alive, life.complete, life.reason
        with contextlib.suppress(OSError):
            self.fleet.no_room = shutil.disk_usage(self._folder.path).free < ROOM_BYTES
        return self.fleet


def now() -> float:
    """The time of records."""
    return time.time()
