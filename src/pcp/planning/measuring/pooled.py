"""Measurements of one path of one program as one: those that were made while little disturbed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.significance import Block, calm_blocks, joint


@dataclass(frozen=True, slots=True)
class Pooled(Measurement):
    """All that was measured of one path of a program here, as one row.

    Arguments:
        calm: the blocks that count, one for each measurement during which little disturbed; where none was calm, all.
        is_calm: whether any of them was.
    """

    calm: tuple[Block, ...] = ()
    is_calm: bool = True

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The calls that count, by measurements."""
        return self.calm


def pooled(rows: Sequence[Measurement], least: float = math.inf) -> Measurement:
    """Rows of one path of one program as one row; if the last one is a failure, that counts.

    Arguments:
        rows: one at least.
        least: undisturbed seconds of the plain program, as far as measurements of other paths have shown.
    """
    last = rows[-1]
    if last.failure is not None:
        return last
    sound = [row for row in rows if row.failure is None]

    judged = max(
        (row for row in sound if row.error is not None),
        key=lambda row: row.least_tolerance or 0.0,
        default=last,
    )
    blocks = [block for row in sound for block in row.blocks]
    are_calm = calm_blocks(blocks, least)
    calm = tuple(block for block, is_calm in zip(blocks, are_calm, strict=True) if is_calm) or tuple(blocks)
    seconds, plain_seconds = joint(calm)
    peaks = [row.peak_bytes for row in sound if row.peak_bytes is not None]
    together = {
        "seconds": tuple(seconds),
        "plain_seconds": tuple(plain_seconds),
        "error": judged.error,
        "plain_error": judged.plain_error,
        "judgement": judged.judgement,
        "peak_bytes": max(peaks, default=None),
        "when": sound[0].when,
    }
    others = {each.name: getattr(last, each.name) for each in fields(Measurement)}
    return Pooled(**others | together, calm=calm, is_calm=any(are_calm) or not blocks)
