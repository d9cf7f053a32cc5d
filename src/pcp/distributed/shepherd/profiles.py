"""What workers measured of kernels, kept for newcomers of like hardware, who try first what was fast for those before them."""

from collections import Counter, defaultdict
from dataclasses import replace

from pcp.distributed.messages import Profile, SiteMeasurement, Welcome
from pcp.distributed.shepherd.reports import Record
from pcp.planning.measuring.measurement_text import InvalidRows
from pcp.planning.profile.shared import Shared, checked, merged

WORKERS_KEPT = 16
"""Whose reports are kept of each hardware: the first, and what they say anew. A minority cannot move a median."""
HARDWARE_KEPT = 256
CHOSEN_LETTERS = 200


class Profiles:
    """Reports of workers by their hardware. What does not fit in is left out: nothing depends on it."""

    def __init__(self) -> None:
        self._hardware: dict[str, str] = {}
        self._reports: dict[str, dict[str, list[Shared]]] = defaultdict(dict)
        self._merged: dict[str, tuple[SiteMeasurement, ...]] = {}
        self.refused: Counter[str] = Counter()
        """Reports that were none, by worker."""

    def joined(self, worker: str, hardware: str) -> None:
        """A worker said what hardware it has."""
        self._hardware[worker] = hardware[:64]

    def offered(self, worker: str, welcome: Welcome) -> Welcome:
        """A welcome, with what is known for the worker's hardware."""
        hardware = self._hardware.get(worker, "")
        if hardware not in self._merged and hardware in self._reports:
            rows = merged(self._reports[hardware].values())
            self._merged[hardware] = tuple(SiteMeasurement(*row) for row in rows)
        return replace(welcome, profile=self._merged.get(hardware, ()))

    def received(self, worker: str, profile: Profile) -> Record:
        """Keep a worker's report; returns the record of it."""
        hardware = self._hardware.get(worker, "")
        try:
            rows = checked([(row.subject, row.kernel, row.ratio) for row in profile.rows])
        except InvalidRows as error:
            self.refused[worker] += 1
            if self.refused[worker] > 1:  # one line of each is enough
                return {"event": "profile", "worker": worker, "refused": self.refused[worker]}
            return {"event": "trouble", "message": f"the profile of {worker} is refused: {error}"}
        if hardware and rows and (hardware in self._reports or len(self._reports) < HARDWARE_KEPT):
            reports = self._reports[hardware]
            if worker in reports or len(reports) < WORKERS_KEPT:
                reports[worker] = rows
                self._merged.pop(hardware, None)
        return {"event": "worker", "worker": worker, "planned": profile.chosen[:CHOSEN_LETTERS]}
