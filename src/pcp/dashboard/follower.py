"""A run followed from outside: its settings and its file of metrics say all, whether it is live, finished or dead."""

import time

from pcp.training.display.fleet import Fleet
from pcp.training.display.metrics import Tail
from pcp.training.run_folder import RunFolder


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
        self.fleet = Fleet(folder.path.resolve().name, folder.config().steps)

    def update(self) -> Fleet:
        """The run as its file tells it by now.

        Raises:
            MetricsCorrupt: a line of the file is no record.
        """
        for record in self._tail.read():
            # A run in one process stamps no times: all there is to say of it is when it wrote last.
            at = record["time"] if "time" in record else self._file.stat().st_mtime
            self.fleet.take(record, at)
        return self.fleet


def now() -> float:
    """The time of records."""
    return time.time()
