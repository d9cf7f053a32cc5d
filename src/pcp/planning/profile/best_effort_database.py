"""A ProfileDatabase for planning, which goes on without one: what fails is a warning, said once, and then there are no rows."""

import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from pcp.planning.profile.database import DatabaseUnusable, ProfileDatabase

_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")
log = logging.getLogger("pcp.planning.profile.best_effort_database")


def _suppressed(
    ask: Callable[Concatenate[ProfileDatabase, _Asked], _Answer], nothing: Callable[[], _Answer]
) -> Callable[Concatenate["BestEffortDatabase", _Asked], _Answer]:
    """A method of a database that answers with nothing where it fails, and ever after."""

    def asked(self: "BestEffortDatabase", /, *words: _Asked.args, **named: _Asked.kwargs) -> _Answer:
        if self.usable:
            try:
                return ask(self.database, *words, **named)
            except DatabaseUnusable as error:
                self.usable = False
                log.warning("%s; planning continues, but its measurements are not kept", error)
        return nothing()

    return asked


class BestEffortDatabase:
    """The methods of a ProfileDatabase that planning needs, without their exceptions.

    Arguments:
        database: the one that is asked.
    """

    def __init__(self, database: ProfileDatabase) -> None:
        self.database = database
        self.usable = True
        """Whether nothing has failed yet."""

    add = _suppressed(ProfileDatabase.add, lambda: None)
    measurements = _suppressed(ProfileDatabase.measurements, list)
    ranking = _suppressed(ProfileDatabase.ranking, list)
    regions = _suppressed(ProfileDatabase.regions, dict)
    of_regions = _suppressed(ProfileDatabase.of_regions, list)
    agreed = _suppressed(ProfileDatabase.agreed, lambda: None)
    agree = _suppressed(ProfileDatabase.agree, lambda: None)
    path_of = _suppressed(ProfileDatabase.path_of, lambda: None)
