"""What arrays that a program takes are known to begin with, told in little: whoever measures the program draws such ones."""

import base64
import hashlib
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.ir.types import TensorSpec

MOST_BYTES = 1 << 20
"""Compressed, of an array that is kept as it is."""
_MOST_TRIED = 1 << 26
_SAMPLE = 1 << 16
_SMALLEST = 1e-5
"""A deviation of an example, or one over it, beyond which it says nothing."""
_LITTLE = 1e-3
"""A deviation that is less than this part of the mean is none."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Beginning:
    """What one argument begins with.

    Arguments:
        mean, deviation: of normal numbers in the place of an array that is not kept; rounded, so that weights that are drawn
            anew begin with the same.
        held: the bytes of the array, compressed; empty where it is not kept.
        digest: says which array is kept.
    """

    mean: float = 0.0
    deviation: float = 0.0
    held: bytes = field(default=b"", repr=False)
    digest: str = ""

    @staticmethod
    def like(array: Any) -> "Beginning":
        """Numbers of the mean and the deviation of an array of real numbers."""
        flat = np.asarray(array).reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLE) | 1].astype(np.float64)
        sample = sample[np.isfinite(sample)]
        if not sample.size:
            return Beginning()
        mean, deviation = float(np.mean(sample)), float(np.std(sample))
        if deviation <= _LITTLE * abs(mean):
            return Beginning(mean)
        size = 2.0 ** (round(2 * math.log2(deviation)) / 2) if deviation else 0.0
        return Beginning(0.0 if abs(mean) < deviation / 4 else float(f"{mean:.2g}"), size)

    @staticmethod
    def of(array: Any) -> "Beginning | None":
        """An array itself, or such numbers if it is large; None of large integers."""
        here = np.ascontiguousarray(array)
        held = zlib.compress(here.tobytes()) if here.nbytes <= _MOST_TRIED else b""
        if held and len(held) <= MOST_BYTES:
            return Beginning(held=held, digest=hashlib.sha256(held).hexdigest()[:16])
        return None if here.dtype.kind in "biuc" else Beginning.like(here)

    @staticmethod
    def given(array: Any) -> "Beginning | None":
        """Numbers as of an example of an input, so that other examples of the kind begin with the same.

        None where these are about the numbers that are drawn anyway, or say nothing, as zeros do and memory that nobody filled.
        """
        here = np.asarray(array)
        like = Beginning() if here.dtype.kind in "biuc" else Beginning.like(here)
        if not _SMALLEST < like.deviation < 1 / _SMALLEST:
            return None
        mean = round(2 * like.mean / like.deviation) * like.deviation / 2
        return None if not mean and 0.25 <= like.deviation <= 4.0 else Beginning(mean, like.deviation)

    @property
    def entry(self) -> list[object]:
        """As it stands in a file: the mean, the deviation, and the bytes of an array that is kept."""
        return [self.mean, self.deviation, base64.b64encode(self.held).decode()]

    @staticmethod
    def of_entry(entry: Any, spec: TensorSpec) -> "Beginning":
        """What stands in a file of an array.

        Raises:
            ValueError: it is no such entry, or keeps an array of another size.
        """
        mean, deviation, text = entry
        held = base64.b64decode(text, validate=True)
        if (
            not all(isinstance(each, float) and math.isfinite(each) for each in (mean, deviation))
            or deviation < 0
        ):
            raise ValueError(
                f"mean {mean!r} and deviation {deviation!r}; expected finite numbers, the latter not negative"
            )
        reader = zlib.decompressobj()
        size = len(reader.decompress(held, spec.bytes + 1)) if held else spec.bytes
        if size != spec.bytes or (held and not reader.eof):
            raise ValueError(f"an array that has not the {spec.bytes} bytes of {spec}")
        return Beginning(mean, deviation, held, hashlib.sha256(held).hexdigest()[:16] if held else "")

    def array(self, spec: TensorSpec, drawn: Callable[[], Array]) -> Array:
        """An array to begin with.

        Arguments:
            spec: of it.
            drawn: makes normal numbers of its shape.
        """
        if self.held:
            return np.frombuffer(zlib.decompress(self.held), spec.dtype.numpy).reshape(spec.shape)
        if not self.deviation:
            return np.full(spec.shape, self.mean)
        return drawn() * np.float32(self.deviation) + np.float32(self.mean)


def beginnings_in(entries: Any, specs: Mapping[str, TensorSpec]) -> dict[str, Beginning]:
    """What a file says that arguments begin with, by their names.

    Raises:
        ValueError: of an argument, which it names.
    """
    if not isinstance(entries, dict):
        raise ValueError(f"what arguments begin with is {entries!r:.80}; expected an object by their names")
    known: dict[str, Beginning] = {}
    for name, entry in entries.items():
        try:
            known[name] = Beginning.of_entry(entry, specs[name])
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise ValueError(f"what argument {name!r} begins with cannot be read: {error}") from None
    return known
