"""What a worker tells of its plan, and what it takes of what others told."""

import logging

from pcp.distributed.messages import Profile, SiteMeasurement
from pcp.planning import Plan
from pcp.planning.measuring.measurement_text import InvalidRows
from pcp.planning.profile.database import DatabaseUnusable, ProfileDatabase
from pcp.planning.profile.shared import checked, shared_of
from pcp.training.planned_step import describe_path

log = logging.getLogger("pcp.distributed.worker")


def profile_of(planned: Plan) -> Profile:
    """What was chosen, and what was measured of the sites of this program; of other programs nothing is told."""
    rows = tuple(SiteMeasurement(*row) for row in shared_of(planned.site_measurements))
    return Profile(describe_path(planned), rows)


def remember_received(rows: tuple[SiteMeasurement, ...]) -> None:
    """Keep what others measured, for the order in which things are tried; what is no measurement is said and left out."""
    if not rows:
        return
    try:
        measured = checked([(row.subject, row.kernel, row.ratio) for row in rows])
        count = ProfileDatabase().receive(measured)
    except (InvalidRows, DatabaseUnusable) as error:
        log.warning("what others measured is not used: %s", error)
        return
    log.info(
        "others measured %d kernels at sites; %d are new. They are tried in that order", len(rows), count
    )
