"""Bounds of what peers may say: one for each field of a message, in its annotation; the codec holds both sides to them.

    seconds: Seconds                                # Annotated[float, Real("seconds", 1e-9, 1e9)]
    losses: Annotated[tuple[Loss, ...], Many(1024)]

A field without a bound is a defect, which shows when the codec is imported.
"""

import math
import sys
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pcp.errors import PCPError


class OutOfBounds(PCPError):
    """A value that its field may not have."""


class Bound:
    """What a field may hold."""

    __slots__ = ()

    def admitted(self, value: Any) -> Any:
        """Return the value, or what is kept of it.

        Raises:
            OutOfBounds: the field may not have it; the message names it and what was expected.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Whole(Bound):
    """Whole numbers from 0 to a largest one."""

    most: int

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if isinstance(value, int) and 0 <= value <= self.most:
            return value
        raise OutOfBounds(f"is {shown(value)}; expected a whole number from 0 to {self.most}")


@dataclass(frozen=True, slots=True)
class Real(Bound):
    """Finite numbers: 0, and those whose size lies within two bounds.

    Arguments:
        what: they are, in words.
        least, most: size of the smallest and the largest besides 0.
        signed: whether they may be negative.
        infinite: whether infinity stands for something, too.
    """

    what: str
    least: float
    most: float
    signed: bool = False
    infinite: bool = False

    def admitted(self, value: Any) -> Any:
        """See `Bound`; a zero without a sign."""
        if isinstance(value, float | int):
            size = -value if value < 0 and self.signed else value
            if self.least <= size <= self.most or value == 0:
                return float(value) + 0.0
            if self.infinite and value == math.inf:
                return value
        raise OutOfBounds(f"is {self._name(value)}; expected {self}")

    def clamped(self, value: float) -> float:
        """Return the nearest number that is admitted; 0 for what is no number, or is negative where nothing may be."""
        if math.isnan(value) or (value < 0 and not self.signed):
            return 0.0
        size = abs(value)
        if size < self.least:
            return self.least if size > 0 and not self.signed else 0.0
        return math.copysign(min(size, self.most), value)

    def __str__(self) -> str:
        sign = "of either sign, " if self.signed else ""
        or_infinite = ", or infinity" if self.infinite else ""
        return f"{self.what}, {sign}0 or from {self.least:g} to {self.most:g}{or_infinite}"

    def _name(self, value: Any) -> str:
        if not isinstance(value, float | int):
            return shown(value)
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "infinite" if value > 0 else "negative infinity"
        if value < 0 and not self.signed:
            return f"{shown(value)}, a negative number"
        if 0 < abs(value) < sys.float_info.min:
            return f"{shown(value)}, a subnormal number"
        return shown(value)


@dataclass(frozen=True, slots=True)
class Words(Bound):
    """Prose for people, of so many letters; what is longer is cut."""

    letters: int

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if not isinstance(value, str):
            raise OutOfBounds(f"is {shown(value)}; expected text")
        return value[: self.letters]


@dataclass(frozen=True, slots=True)
class Text(Bound):
    """Text that programs read, of so many letters at most; what is longer would be something else if it were cut."""

    letters: int

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if isinstance(value, str) and len(value) <= self.letters:
            return value
        received = f"text of {len(value)} letters" if isinstance(value, str) else shown(value)
        raise OutOfBounds(f"is {received}; expected text of {self.letters} letters at most")


@dataclass(frozen=True, slots=True)
class Octets(Bound):
    """Bytes.

    Arguments:
        what: they are, in words.
        least, most: how many.
    """

    what: str
    least: int
    most: int

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if isinstance(value, bytes) and self.least <= len(value) <= self.most:
            return value
        expected = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        received = len(value) if isinstance(value, bytes) else shown(value)
        raise OutOfBounds(f"is wrong: {self.what} has {expected} bytes; received {received}")


@dataclass(frozen=True, slots=True)
class Many(Bound):
    """Sequences of so many at most; where they are for people only, what is more is cut."""

    most: int
    cut: bool = False

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if len(value) <= self.most or self.cut:
            return value[: self.most]
        raise OutOfBounds(f"holds {len(value)}; expected {self.most} at most")


def shown(value: Any) -> str:
    """A value in a message, cut."""
    text = (
        repr(value) if not isinstance(value, int) or value.bit_length() < 300 else "a number of many digits"
    )
    return text if len(text) <= 60 else text[:59] + "…"


def bound_of(hint: Any) -> Any:
    """The bound in an annotation; None where there is none."""
    return next((each for each in get_args(hint)[1:] if isinstance(each, Bound)), None)


Number = Annotated[int, Whole(2**64 - 1)]
"""A number that something has, or bytes; arithmetic with it is no one's trouble."""
Count = Annotated[int, Whole(2**62)]
Batches = Annotated[int, Whole(2**48)]
"""Of one range; what several hold together is a count."""
Small = Annotated[int, Whole(2**32 - 1)]
SECONDS = Real("seconds", 1e-9, 1e9)
Seconds = Annotated[float, SECONDS]
LOSS = Real("a loss", sys.float_info.min, (2 - 2**-23) * 2.0**127, signed=True)
Loss = Annotated[float, LOSS]
"""No larger than f32 holds."""
Ratio = Annotated[float, Real("a ratio", 1e-6, 1e6, infinite=True)]
"""Of a time to another; infinite where the first never came."""
Digest = Annotated[bytes, Octets("a digest", 32, 32)]
Reason = Annotated[str, Words(400)]
Answer = Annotated[str, Words(4000)]
"""Of a Shepherd, which may repeat what another said."""
Name = Annotated[str, Text(200)]
Address = Annotated[str, Text(300)]
"""HOST:PORT, or empty."""

LOSSES = 1024
"""In one update; see `losses.py`."""
FRAGMENTS = 1 << 14
RANGES = 1024
"""Of batches in one lease."""
DIGESTS = 1 << 12
"""Of states that one lease commits to."""
ROWS = 512
"""Of measurements in one report."""
PEERS = 1024
"""In one message."""
