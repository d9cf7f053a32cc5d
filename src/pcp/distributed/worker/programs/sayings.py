"""What a confined process may say, each in a record with bounds, and the one function that reads it.

The process may have been taken over. So a line is JSON without anything that JSON does not have (NaN, infinity, a key twice),
not nested deeply, and holds what one of these records holds; whatever else it says is `SaidWrong`. Keys that no record names
are not looked at.
"""

import json
import math
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pcp.distributed.bounds import (
    LOSSES,
    SECONDS,
    Bound,
    Count,
    Many,
    Octets,
    OutOfBounds,
    Seconds,
    Text,
    Whole,
    shown,
)
from pcp.distributed.messages import Outcome
from pcp.errors import PCPError
from pcp.processes.child import printable

LONGEST_LINE = 400
_LONGEST_SAID = 80
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LONGEST_NUMBER = 40
"""Digits of a number; a loss has some 25."""


class SaidWrong(PCPError):
    """A confined process said what it must not."""


class Prose(Bound):
    """Text for people: cut, and without what steers a terminal.

    Arguments:
        letters: at most.
    """

    def __init__(self, letters: int) -> None:
        self.letters = letters

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if not isinstance(value, str):
            raise OutOfBounds(f"is {shown(value)}; expected text")
        return printable(value, self.letters)


class MaybeFinite(Bound):
    """A number of f64, or the name of one that is not finite."""

    def admitted(self, value: Any) -> Any:
        """See `Bound`."""
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if isinstance(value, float | int):
            return float(value)
        raise OutOfBounds(f"is {shown(value)}; expected a number, or one of {', '.join(_NOT_FINITE)}")


Loss = Annotated[float, MaybeFinite()]
"""Of a step, which may have diverged."""
Name = Annotated[str, Text(200)]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Made:
    """A blob that the process says it made: `[DIGEST, SIZE]`."""

    digest: Annotated[bytes, Octets("a digest", 32, 32)]
    size: Annotated[int, Whole(2**50)]


@dataclass(frozen=True, slots=True)
class Settled:
    """`[FRAGMENT, OUTCOME]`."""

    fragment: Annotated[int, Whole(2**31)]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Measured:
    """What a kernel took at a site: `[SUBJECT, KERNEL, RATIO]`."""

    subject: Name
    kernel: Name
    ratio: Loss


@dataclass(frozen=True, slots=True)
class Planned:
    """What was chosen for the step: `[CHOSEN, ROWS]`."""

    chosen: Annotated[str, Prose(LONGEST_LINE)]
    rows: Annotated[tuple[Measured, ...], Many(1 << 12)]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The run can be trained."""

    profile: Planned | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What a lease came to."""

    payload: Made
    tokens: Count
    losses: Annotated[tuple[Loss, ...], Many(LOSSES)]
    seconds: Seconds
    overhead: Seconds
    waited: Seconds
    states: Annotated[tuple[Made, ...], Many(1 << 12)]
    settled: Annotated[tuple[Settled, ...], Many(1 << 14)]
    batches: Count = 0


@dataclass(frozen=True, slots=True)
class Postponed:
    """The steps of a lease are done; its push is told of aside."""

    later: bool


@dataclass(frozen=True, slots=True)
class Redone:
    """What a repeated piece came to."""

    after: Made
    payload: Made | None


@dataclass(frozen=True, slots=True)
class Stepped:
    """So many steps are done."""

    steps: Count
    seconds: Seconds
    batches: Count


@dataclass(frozen=True, slots=True)
class Meets:
    """An exchange is due."""

    exchange: Annotated[int, Whole(2**62 - 1)]
    offer: Made | None
    loss: Loss


@dataclass(frozen=True, slots=True)
class NeedsShard:
    """A shard is used now."""

    shard: Name


@dataclass(frozen=True, slots=True)
class ExpectsShards:
    """Shards are used next, the first of them now."""

    shards: Annotated[tuple[Name, ...], Many(1 << 14)]


@dataclass(frozen=True, slots=True)
class NeedsLibraries:
    """Native libraries are to be built."""

    libraries: Annotated[tuple[Name, ...], Many(100)]


@dataclass(frozen=True, slots=True)
class Aborted:
    """The work was given up, as was asked."""

    aborted: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error that a caller may foresee."""

    error: Name
    reason: Annotated[str, Prose(2_000)]


@dataclass(frozen=True, slots=True)
class Bug:
    """An error that nobody foresaw, with its traceback."""

    bug: Annotated[str, Prose(10_000)]


Answer = Prepared | Done | Postponed | Redone | Aborted | Trouble | Bug
Remark = Stepped | Meets | NeedsShard | ExpectsShards | NeedsLibraries
"""What is said before the answer."""
REMARKS = (Stepped, Meets, NeedsShard, ExpectsShards, NeedsLibraries)
ENDS: tuple[type, ...] = (Aborted, Trouble, Bug)
"""Answers to whatever was asked."""


@dataclass(frozen=True, slots=True)
class Said:
    """A line.

    Arguments:
        number: of the request that it answers; None where it answers none.
        lease: that it is about, where it is said aside; None where it is not.
        content: what it says, by key.
        line: how it begins, for messages.
    """

    number: int | None
    lease: int | None
    content: dict[str, Any]
    line: bytes


def read(line: bytes) -> Said:
    """Read a line that a confined process said.

    Raises:
        SaidWrong: it is no object of strict JSON, or what should be a number is none.
    """
    try:
        content = json.loads(
            line,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_int=_whole,
            parse_float=_finite,
        )
        if not isinstance(content, dict):
            raise SaidWrong("it is no JSON object")
        return Said(_number(content, "number"), _number(content, "lease"), content, line[:_LONGEST_SAID])
    except (ValueError, RecursionError, MemoryError, OutOfBounds, SaidWrong) as error:
        raise wrong(line, error) from None


def look_at(said: Said, forms: Sequence[type]) -> Any:
    """The record that a line holds: of the first of these forms whose first key it has, or that need not have it.

    Raises:
        SaidWrong: no form begins with its key, it lacks another key, or a key may not have the value.
    """
    for form in forms:
        first = fields(form)[0]
        if first.name in said.content or first.default is not MISSING:
            try:
                return _record(form, said.content)
            except (ValueError, OutOfBounds) as error:
                raise wrong(said.line, error) from None
    expected = " or ".join(fields(form)[0].name for form in forms)
    raise wrong(said.line, f"expected {expected}")


def finite_or_named(losses: Iterable[float]) -> list[float | str]:
    """Losses as they are said: those that are not finite by their names."""
    return [loss if math.isfinite(loss) else json.dumps(loss) for loss in losses]


def seconds(value: float) -> float:
    """Seconds as they are said: a difference of two readings of a clock may be a little below 0."""
    return SECONDS.clamped(value)


def wrong(line: bytes, why: object) -> SaidWrong:
    """The error that a line is, and why."""
    reason = (
        "it is nested too deeply" if isinstance(why, RecursionError) else printable(str(why), LONGEST_LINE)
    )
    return SaidWrong(f"the process that runs programs said {line[:_LONGEST_SAID]!r}: {reason}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise SaidWrong("a key stands there twice")
    return content


def _no_constant(name: str) -> Any:
    raise SaidWrong(f"{name} is no number of JSON")


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise SaidWrong(f"a number has {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    value = float(text) if len(text) <= _LONGEST_NUMBER else math.inf
    if not math.isfinite(value):
        raise SaidWrong(f"{text[:_LONGEST_NUMBER]} is larger than numbers are")
    return value


def _number(content: dict[str, Any], key: str) -> int | None:
    if key not in content:
        return None
    value = _value(Count, content[key], key)
    assert isinstance(value, int)
    return value


def _record(form: type[_T], content: Any) -> _T:
    """A record from an object by keys, or from a list by places."""
    names = [field.name for field in fields(form)]  # type: ignore[arg-type]  # every form is a dataclass
    if isinstance(content, list):
        if len(content) != len(names):
            raise OutOfBounds(f"a list of {len(content)} stands for {form.__name__}; expected {len(names)}")
        content = dict(zip(names, content, strict=True))
    if not isinstance(content, dict):
        raise OutOfBounds(f"{shown(content)} stands for {form.__name__}; expected {', '.join(names)}")
    values = {}
    for field, hint in _HINTS[form]:
        if field.name in content:
            values[field.name] = _value(hint, content[field.name], field.name)
        elif field.default is MISSING:
            raise OutOfBounds(f"{field.name} is missing")
    return form(**values)


def _value(hint: Any, value: Any, name: str) -> Any:
    """A value as a hint says; raises OutOfBounds."""
    if get_origin(hint) in (types.UnionType, typing.Union):
        if value is None:
            return None
        (hint,) = set(get_args(hint)) - {types.NoneType}
    if get_origin(hint) is not Annotated:
        if hint in _HINTS:
            return _record(hint, value)
        if hint is bool:
            if type(value) is not bool:
                raise OutOfBounds(f"{name} is {shown(value)}; expected true or false")
            return value
        return Outcome(_value(Name, value, name))
    kind, bound = get_args(hint)[:2]
    try:
        return _bounded(kind, bound, value, name)
    except OutOfBounds as error:
        raise OutOfBounds(str(error) if str(error).startswith(f"{name} ") else f"{name} {error}") from None


def _bounded(kind: Any, bound: Bound, value: Any, name: str) -> Any:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise OutOfBounds(f"is {shown(value)}; expected a list")
        each_hint = get_args(kind)[0]
        return tuple(_value(each_hint, each, name) for each in bound.admitted(value))
    if kind is bytes:
        if not isinstance(value, str):
            raise OutOfBounds(f"is {shown(value)}; expected hexadecimal digits")
        value = bytes.fromhex(value[:1000])
    if isinstance(value, bool) or (kind is int and not isinstance(value, int)):
        raise OutOfBounds(
            f"is {shown(value)}; expected a whole number" if kind is int else f"is {shown(value)}"
        )
    return bound.admitted(value)


_HINTS = {
    form: [(field, get_type_hints(form, include_extras=True)[field.name]) for field in fields(form)]
    for form in (Made, Settled, Measured, Planned, Prepared, Done, Postponed, Redone, *REMARKS, *ENDS)
}
