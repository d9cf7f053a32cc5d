"""The results of a call in few numbers: by them a later process sees how far its own are from results that were right.

Of every result that norms judge, places that are `WIDTH` apart are added up with random signs. That is linear, and the norm of
what comes out is about that of the result, wrong by an eighth (Alon, Matias and Szegedy, "The space complexity of approximating
the frequency moments", 1996, section 2.2). So the norm of the difference of two sketches is about the distance of the results.
"""

import functools
import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends.processors import core_count
from pcp.interruption import all_of
from pcp.ir import Program

WIDTH = 64
"""Numbers that a result becomes."""
_PART = 1 << 20
"""Elements that are looked at together: a multiple of `WIDTH`."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sketch:
    """Of the results of one call.

    Arguments:
        numbers: of the results that norms judge, float32 of shape (results, WIDTH); of state, only of what is new in it.
        rest: the digest of the bits of all other results.
    """

    numbers: Array
    rest: bytes

    @classmethod
    def of(
        cls,
        program: Program,
        arguments: Sequence[Any],
        results: Sequence[Any],
        ignored: Collection[int] = (),
        exact: bool = False,
    ) -> "Sketch":
        """The sketch of a call.

        Arguments:
            program: what was called.
            arguments: of the call, flat, as they were before it: arrays, or buffers of a device, of which each is read where
                it is added up, several at once.
            results: flat, as these.
            ignored: places of results that are left out.
            exact: whether bits count in all of them.
        """
        judged = [place for place in range(len(results)) if place not in ignored]
        by_norm = [
            place for place in judged if not exact and program.results[place].spec.dtype.is_differentiable
        ]
        by_bits = [place for place in judged if place not in by_norm]
        before = {
            entry.alias: (entry.kept, array)
            for entry, array in zip(program.arguments, arguments, strict=True)
            if entry.alias is not None and entry.kept
        }
        numbers = all_of(
            [
                functools.partial(_numbers, results[place], *before.get(place, (0.0, None)))
                for place in by_norm
            ],
            core_count(),
        )
        with np.errstate(over="ignore"):
            sketched = np.array(numbers, np.float32).reshape(len(by_norm), WIDTH)
        return cls(sketched, digest_of_bits([results[place] for place in by_bits]))

    @classmethod
    def from_bytes(cls, kept: bytes) -> "Sketch":
        """What `to_bytes` made; what was cut off is near nothing."""
        size = hashlib.sha256().digest_size
        whole = len(kept[size:]) // (4 * WIDTH) * 4 * WIDTH
        return cls(np.frombuffer(kept[size : size + whole], "<f4").reshape(-1, WIDTH), kept[:size])

    def to_bytes(self) -> bytes:
        """All of it."""
        return self.rest + self.numbers.astype("<f4").tobytes()

    def distance(self, right: "Sketch") -> float:
        """Of the result that is the farthest from the right one, relative to the norm of that; infinite where bits differ."""
        if self.rest != right.rest or self.numbers.shape != right.numbers.shape:
            return math.inf
        with np.errstate(all="ignore"):
            ours, theirs = self.numbers.astype(np.float64), right.numbers.astype(np.float64)
            apart, norms = (np.linalg.norm(each, axis=1) for each in (ours - theirs, theirs))
            relative = np.where(apart == 0, 0.0, apart / norms)
            return float(np.max(np.where(np.isfinite(norms + relative), relative, np.inf), initial=0.0))


def digest_of_bits(arrays: Sequence[Any]) -> bytes:
    """The SHA-256 of arrays with their element types and shapes; gigabytes of them by every processor."""
    return hashlib.sha256(
        b"".join(all_of([functools.partial(_bits, array) for array in arrays], core_count()))
    ).digest()


def _numbers(result: Any, kept: float, before: Any) -> Array:
    sums = _added_up(result)
    return sums if before is None else sums - kept * _added_up(before)


def _added_up(array: Any) -> Array:
    flat: Array = np.ascontiguousarray(np.asarray(array)).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    wide = np.float64 if flat.dtype == np.float64 else np.float32
    sums = np.zeros(WIDTH)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _PART):
            part = flat[start : start + _PART].astype(wide, copy=False)
            rows = part.size // WIDTH
            signs = np.random.default_rng(start).choice(np.array([-1, 1], wide), rows + 1)
            sums += signs[:rows] @ part[: rows * WIDTH].reshape(rows, WIDTH)
            sums[: part.size % WIDTH] += signs[rows] * part[rows * WIDTH :]
    return sums


def _bits(given: Any) -> bytes:
    array = np.asarray(given)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + hashlib.sha256(data).digest()).digest()
