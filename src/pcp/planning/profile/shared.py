"""Measurements of kernels at sites as they travel between machines: three values each, which say what to try first.

Nobody chooses by them. A search reads rows of its own hardware only; those received stand under a hardware that no machine has,
so they count in `ProfileDatabase.ranking` and nowhere else: what they put first is measured and verified here like any other.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.measurement_text import InvalidRows

Shared = tuple[str, str, float]
"""Digest of a region, NAME@VERSION of a kernel, and its time relative to the operation's; infinite where it failed."""

RECEIVED = "0" * 16
"""The hardware of rows that came from others."""
MOST_ROWS = 512
"""In one report, and in what a newcomer is told."""
KEPT_ROWS = 8192
"""Received rows in a database; the oldest go."""
_LARGEST_RATIO = 1e6
_SUBJECT = re.compile(r"[0-9a-f]{64}")
_KERNEL = re.compile(r"[\w.:+-]{1,100}@[0-9]{1,9}", re.ASCII)


def shared_of(rows: Iterable[Measurement], most: int | None = MOST_ROWS) -> list[Shared]:
    """What others are told of measurements made here, the first of them; rows of whole programs are left out."""
    told = (
        (row.subject, row.path, min(max(row.ratio, 1 / _LARGEST_RATIO), _LARGEST_RATIO))
        if row.failure is None and math.isfinite(row.ratio)
        else (row.subject, row.path, math.inf)
        for row in rows
        if _SUBJECT.fullmatch(row.subject) and _KERNEL.fullmatch(row.path)
    )
    return list(dict.fromkeys(told))[:most]


def checked(rows: Sequence[Any]) -> list[Shared]:
    """Rows that somebody sent.

    Raises:
        InvalidRows: they are too many, or one is not a row.
    """
    if len(rows) > MOST_ROWS:
        raise InvalidRows(f"it holds {len(rows)} rows; expected at most {MOST_ROWS}")
    shared = []
    for row in rows:
        subject, kernel, ratio = (
            row if isinstance(row, list | tuple) and len(row) == 3 else (None, None, None)
        )
        if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
            raise InvalidRows(f"a row is {row!r:.80}; expected 64 hexadecimal digits, a kernel and a number")
        if not isinstance(kernel, str) or not _KERNEL.fullmatch(kernel):
            raise InvalidRows(f"the kernel is {kernel!r:.80}; expected NAME@VERSION")
        if not isinstance(ratio, int | float) or not (
            ratio == math.inf or 1 / _LARGEST_RATIO <= ratio <= _LARGEST_RATIO
        ):
            raise InvalidRows(f"the ratio is {ratio!r:.40}; expected 1e-6 to 1e6, or infinity")
        shared.append((subject, kernel, float(ratio)))
    return shared


def merged(reports: Iterable[Sequence[Shared]], most: int | None = MOST_ROWS) -> list[Shared]:
    """What several told, as the median of each; what the most of them speak of comes first, and no more than `most`."""
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for report in reports:
        for (subject, kernel), ratio in {
            (subject, kernel): ratio for subject, kernel, ratio in report
        }.items():
            ratios[subject, kernel].append(ratio)
    ordered = sorted(ratios.items(), key=lambda each: -len(each[1]))
    return [(subject, kernel, median(told)) for (subject, kernel), told in ordered[:most]]


def measurement_of_shared(row: Shared, when: float) -> Measurement:
    """A received row as it stands in a database."""
    subject, kernel, ratio = row
    if ratio == math.inf:
        return Measurement(subject, kernel, RECEIVED, "", failure=Failure.run_error, when=when)
    return Measurement(subject, kernel, RECEIVED, "", seconds=(ratio,), plain_seconds=(1.0,), when=when)
