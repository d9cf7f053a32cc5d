"""A ProfileDatabase for planning, which goes on without one: what fails is a warning, said once, and then there are no rows."""

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from pcp.planning.measuring.hardware import Hardware
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.profile.database import DatabaseUnusable, ProfileDatabase
from pcp.planning.profile.region import Region

_Answer = TypeVar("_Answer")
log = logging.getLogger("pcp.planning.profile.best_effort_database")


class BestEffortDatabase:
    """The methods of a ProfileDatabase that planning needs, without their exceptions.

    Arguments:
        database: the one that is asked.
    """

    def __init__(self, database: ProfileDatabase) -> None:
        self._database: ProfileDatabase | None = database

    @property
    def usable(self) -> bool:
        """Whether nothing has failed yet."""
        return self._database is not None

    def add(
        self,
        measurement: Measurement,
        *,
        path: Path | None = None,
        hardware: Hardware | None = None,
        about: str | None = None,
        region: Region | None = None,
    ) -> None:
        """Add a row if that is possible."""
        self._asked(
            lambda known: known.add(measurement, path=path, hardware=hardware, about=about, region=region),
            None,
        )

    def measurements(
        self, subject: str, hardware: str | None = None, versions: str | None = None
    ) -> list[Measurement]:
        """The rows that can be read."""
        return self._asked(lambda known: known.measurements(subject, hardware, versions), [])

    def ranking(self, subject: str, hardware: str, versions: str | None = None) -> list[str]:
        """The order in which to try paths, as far as it is known."""
        return self._asked(lambda known: known.ranking(subject, hardware, versions), [])

    def regions(self, digests: Collection[str]) -> dict[str, Region]:
        """Those of these regions that are kept and can be read."""
        return self._asked(lambda known: known.regions(digests), {})

    def of_regions(self, family: str, hardware: str, versions: str, most: int) -> list[Measurement]:
        """The newest rows of kept regions of a family that can be read."""
        return self._asked(lambda known: known.of_regions(family, hardware, versions, most), [])

    def agreed(self, asked: str) -> bytes | None:
        """The sketch of results that agreed, if one is known."""
        return self._asked(lambda known: known.agreed(asked), None)

    def agree(self, asked: str, sketch: bytes) -> None:
        """Enter one, if that is possible."""
        self._asked(lambda known: known.agree(asked, sketch), None)

    def path_of(self, digest: str) -> Path | None:
        """The path of that digest, if it is known and can be read."""
        return self._asked(lambda known: known.path_of(digest), None)

    def _asked(self, ask: Callable[[ProfileDatabase], _Answer], nothing: _Answer) -> _Answer:
        """What the database answers; `nothing` where it fails, and ever after."""
        if self._database is not None:
            try:
                return ask(self._database)
            except DatabaseUnusable as error:
                self._database = None
                log.warning("%s; planning continues, but its measurements are not kept", error)
        return nothing
