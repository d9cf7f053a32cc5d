"""One kind of operands at a site, what is right for them, and how far results are from it."""

import functools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.backends.base import Buffer
from pcp.ir import TensorSpec
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels.registry import family_of
from pcp.planning.judging.changes import Change
from pcp.planning.judging.distances import Scale
from pcp.planning.judging.pair import Pair
from pcp.planning.measuring.site_operands import MOVED_UNITS as MOVED_UNITS
from pcp.planning.measuring.site_operands import NORMAL, Kind, moved, unit_of
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import timed

Array = np.ndarray[Any, Any]

FEWEST = 16
"""Elements of a result from which on its own norm is its scale; fewer may be small by chance."""
EXACT = 1 << 22
"""Elements of the operands and results up to which float64 says what is right, on a processor."""
TINY = 1e-30
"""The size of elements below which a result is as good as 0."""


class Case:
    """One kind of operands at a site, and what is right for them.

    Arguments:
        subject: the operation alone.
        kind: how the operands that it is measured on are changed.
        normal: the case of the operands as they are; None for that itself.
    """

    def __init__(self, subject: Subject, kind: Kind, normal: "Case | None") -> None:
        self.kind, self._subject, self._normal = kind, subject, normal
        self._seed = zlib.crc32(kind.name.encode())
        self.is_judged = kind.is_judged and not (kind.is_far and _saturates(subject))
        self.buffers = _operands(subject, kind, self._seed)
        self.plain = self._by_plain(self.buffers)
        self.is_exact = subject.target.platform == "cpu" and size_of(subject) <= EXACT
        self._run = subject.exact if self.is_exact else self._by_plain

    def _by_plain(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        return timed(self._subject.plain, buffers, self._subject.target)[0]

    @property
    def bytes(self) -> int:
        """Memory that it takes, with what is exactly right."""
        wide = sum(entry.spec.size * 8 for entry in self._subject.program.results) if self.is_exact else 0
        return wide + sum(spec.bytes for spec in specs_of(self._subject))

    @functools.cached_property
    def usual(self) -> float:
        """The size of usual operands: what cancels out to 0 has errors of that scale."""
        sizes = (self._subject.comparison.size(each) for each in self.buffers if each.dtype.kind in "fV")
        return max(sizes, default=1.0)

    @functools.cached_property
    def right(self) -> list[Any]:
        """What every result should be; not finite where the operation's own result is not."""
        if not self.is_exact:
            return self.plain
        pairs = zip(self._run(self.buffers), self.plain, strict=True)
        return [_where_finite(y, plain) for y, plain in pairs]

    @functools.cached_property
    def plain_errors(self) -> list[float]:
        """Of the operation itself, by result; 0 where it says what is right."""
        return self._errors(self.plain) if self.is_exact else [0.0] * len(self.plain)

    @functools.cached_property
    def moves(self) -> list[float]:
        """How far each result moves where operands move by `MOVED_UNITS` roundings."""
        return self.moves_by(0.0)

    def moves_by(self, part: float) -> list[float]:
        """The same where operands move by this part of themselves, if that is more."""
        return self._errors(self._run(_moved(self._subject, self.buffers, self._seed, part)))

    def _errors(self, results: Sequence[Any]) -> list[float]:
        return [self.error(place, each) for place, each in enumerate(results)]

    def error(self, place: int, result: Any) -> float:
        """Of one result; 0 of integers."""
        right = self.right[place]
        if right.dtype.kind not in "fV":
            return 0.0
        return self.error_of(place, self._subject.comparison.pair(result, right))

    def error_of(self, place: int, pair: Pair) -> float:
        """Of one result; where operands are not small, on the scale of the same result on normal operands at least.

        What cancels out, as gradients of what saturates, errs by the roundings of what cancels.
        """
        least = 0.0 if self.kind.shrinks or self._normal is None else self._normal.sizes[place]
        return distance_of(pair, lambda: self.usual, least)

    @functools.cached_property
    def sizes(self) -> list[float]:
        """Of the elements of every result of the operation itself."""
        size = self._subject.comparison.size
        return [size(each) if each.dtype.kind in "fV" else 0.0 for each in self.plain]


def _operands(subject: Subject, kind: Kind, seed: int) -> list[Buffer]:
    entries = subject.program.arguments
    floats = [place for place, entry in enumerate(entries) if entry.spec.dtype.is_float]
    rng = np.random.default_rng([7, seed])
    if kind is NORMAL:
        return list(subject.inputs[0])
    operands = []
    for place, (entry, buffer) in enumerate(zip(entries, subject.inputs[0], strict=True)):
        spec = entry.spec
        if place in floats and spec.size:
            operands.append(_changed(subject, buffer, kind.floats(rng, spec.shape, place == floats[0])))
        elif not spec.dtype.is_differentiable and spec.size and spec.dtype.kind != "bool":
            array = kind.integers(rng, np.asarray(buffer)).astype(spec.dtype.numpy, copy=False)
            operands.append(subject.target.place(array, spec))
        else:
            operands.append(buffer)
    return subject.completed(operands)


def _moved(subject: Subject, buffers: Sequence[Buffer], seed: int, part: float) -> list[Buffer]:
    """The operands moved by some roundings, or by this part of themselves, if that is more."""
    rng = np.random.default_rng([8, seed])
    operands = []
    for entry, buffer in zip(subject.program.arguments, buffers, strict=True):
        is_moved = entry.spec.dtype.is_float and entry.spec.size
        operands.append(_changed(subject, buffer, moved(rng, entry.spec.dtype, part)) if is_moved else buffer)
    return subject.completed(operands)


def _changed(subject: Subject, buffer: Buffer, change: Change) -> Buffer:
    return buffer if change.is_none else subject.comparison.changed(buffer, change)


def _saturates(subject: Subject) -> bool:
    """Whether the operation, if it is one alone, is of a family in which bits are lost far from 0."""
    module = subject.program.module()
    operation, *rest = (op.operation for op in entry_block(module).operations)
    family = family_of(operation) if len(rest) == 1 else None
    return family is not None and family.saturates


def _where_finite(exact: Any, plain: Any) -> Any:
    """What is exactly right, and what the operation returns where that is not finite."""
    if plain.dtype.kind not in "fV":
        return plain
    wide, right = np.asarray(plain).astype(np.float64), np.asarray(exact)
    merged: Array = np.where(np.isfinite(wide) & np.isfinite(right), right, wide)
    return merged


def roundings_of(subject: Subject, place: int) -> float:
    """The coarsest rounding of operands and of a result."""
    specs = [entry.spec for entry in subject.program.arguments]
    specs.append(subject.program.results[place].spec)
    return max((unit_of(spec.dtype) for spec in specs if spec.dtype.is_float), default=0.0)


def specs_of(subject: Subject) -> list[TensorSpec]:
    """Those of its operands and results."""
    return [*(e.spec for e in subject.program.arguments), *(e.spec for e in subject.program.results)]


def size_of(subject: Subject) -> int:
    """Elements of its operands and results."""
    return sum(spec.size for spec in specs_of(subject))


def distance_of(pair: Pair, usual: Callable[[], float], least: float = 0.0) -> float:
    """The error of the whole or of a slice, whichever is larger; what is as good as 0 is judged on the scale of usual numbers.

    So is what has few elements, which may be small by chance.

    Arguments:
        usual: the size of usual operands.
        least: the least size of elements that errors are relative to.
    """
    own, size = pair.scale, math.prod(pair.shape)
    if own.whole == 0.0 and pair.distance(Scale.of_elements(1.0, pair.shape)).error == 0.0:
        return 0.0  # on every scale, of which none need be computed
    typical = own.whole / math.sqrt(max(1, size))
    if size < FEWEST or max(least, typical) < TINY:
        scale = usual()
        least = max(scale if scale > TINY else 1.0, least)
    if least > typical:
        own = Scale.of_elements(least, pair.shape)
    distance = pair.distance(own)
    return max(distance.error, distance.slice_error)
