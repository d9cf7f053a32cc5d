"""What two series of times, taken in turn, say about which way is faster, and when that is too close to call."""

import math
import statistics
from collections.abc import Sequence

from pcp.planning.measurement import Measurement

LEAST_GAIN = 0.02
"""A way that is not faster by this part is not faster."""
TIE = 0.03
"""Two ways whose times differ by less than this part are equally fast."""
SIGMAS = 2.0
"""Standard errors by which the mean must be below 1."""


def is_faster(measurement: Measurement) -> bool:
    """Whether a path is faster than the plain one, beyond the noise of the times."""
    logs = [
        math.log(mine / plain)
        for mine, plain in zip(measurement.seconds, measurement.plain_seconds, strict=False)
    ]
    if not logs:
        return False
    if len(logs) == 1:
        return logs[0] < math.log(0.9)
    center = statistics.median(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    return center + SIGMAS * error < math.log1p(-LEAST_GAIN) or (
        # One disturbed call among others that all agree says nothing.
        max(logs) < 0 and center < math.log1p(-3 * LEAST_GAIN)
    )


def pooled(rows: Sequence[Measurement]) -> Measurement | None:
    """Rows of one path of one program as one row; what the last one says of failures counts."""
    if not rows:
        return None
    last = rows[-1]
    sound = [row for row in rows if row.failure is None]
    if last.failure is not None or not sound:
        return last
    timed = [row for row in sound if row.seconds and row.plain_seconds]
    errors = [row.error for row in sound if row.error is not None]
    plain = [row.plain_error for row in sound if row.plain_error is not None]
    return Measurement(
        last.subject,
        last.path,
        last.hardware,
        last.versions,
        tuple(second for row in timed for second in row.seconds),
        tuple(second for row in timed for second in row.plain_seconds),
        max(errors, default=None),
        max(plain, default=None),
        max((row.peak_bytes for row in sound if row.peak_bytes is not None), default=None),
        None,
        last.detail,
        sound[0].when,
    )
