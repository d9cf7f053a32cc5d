"""What was measured of kernels here, for machines of like hardware: pages of a few hundred rows, as JSON."""

import time
from collections import OrderedDict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.shared import MOST_ROWS, RECEIVED, Shared, merged, shared_of
from pcp.training.display.metrics import to_json_line

FRESH_SECONDS = 60.0
HARDWARE_KEPT = 16


class ProfilePages:
    """Answers `/profile?hardware=DIGEST&start=ROW`.

    Arguments:
        database: whose rows are shown; those that it received from others are not.
    """

    def __init__(self, database: ProfileDatabase) -> None:
        self._database = database
        self._made: OrderedDict[str, tuple[float, list[Shared]]] = OrderedDict()

    def application(self) -> ASGIApp:
        """The pages as an ASGI application."""
        return Starlette(routes=[Route("/profile", self._page)])

    async def _page(self, request: Request) -> Response:
        hardware, start = request.query_params.get("hardware", ""), request.query_params.get("start", "0")
        if not start.isascii() or not start.isdigit() or len(start) > 9:
            return Response(to_json_line({"error": "start is a whole number"}), 400)
        first = int(start)
        rows = self._rows(hardware)[first : first + MOST_ROWS]
        return Response(to_json_line({"rows": rows}), media_type="application/json")

    def _rows(self, hardware: str) -> list[Shared]:
        at, rows = self._made.get(hardware, (0.0, []))
        if hardware not in self._made or time.monotonic() - at > FRESH_SECONDS:
            known = [] if hardware == RECEIVED else self._database.measurements(hardware=hardware)
            rows = merged(([row] for row in shared_of(known, None)), None)
            self._made[hardware] = (time.monotonic(), rows)
            if len(self._made) > HARDWARE_KEPT:
                self._made.popitem(last=False)
        return rows
