"""Samples that are arrays: files that hold them, and a shuffled order in which batch `i` is known from the seed and `i`."""

import functools
import json
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.batches import InvalidBatches, permutation
from pcp.training.data.safetensors_file import (
    Array,
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    header_of,
    map_arrays,
)

Rows = npt.NDArray[np.int64]
Shape = tuple[tuple[int, ...], np.dtype[Any]]

VALIDATION_FRACTION = 0.1
_SPLIT = 2**64 - 1
_PART_BYTES = 1 << 24
"""Of an array that are moved together."""


class SamplesCorrupt(PCPError):
    """A file that does not hold samples as `Samples.write` leaves them."""


class TooFewSamples(PCPError):
    """Samples that do not fill a batch for training and one for validation."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples in a file.

    Arguments:
        path: a safetensors file; its arrays are named `0`, `1`, ... in the order in which a loss takes them.
        arrays: these arrays; each has the samples along its first axis.
    """

    path: Path
    arrays: tuple[Array, ...]

    @staticmethod
    def write(path: Path, arrays: Sequence[Array], rows: Rows | None = None) -> "Samples":
        """Write samples to a file, which appears whole or not at all, some rows at a time.

        Arguments:
            arrays: first axes count the samples; may be mapped from files.
            rows: which samples, in order; None for all.
        """
        rows = np.arange(len(arrays[0])) if rows is None else rows

        def parts() -> Iterator[tuple[Array, ...]]:
            step = max(1, _PART_BYTES // max(1, *(array[:1].nbytes for array in arrays)))
            for first in range(0, len(rows), step):
                yield tuple(array[rows[first : first + step]] for array in arrays)

        return Samples.write_parts(
            path, [(array.shape[1:], array.dtype) for array in arrays], len(rows), parts()
        )

    @staticmethod
    def write_parts(
        path: Path, shapes: Sequence[Shape], count: int, parts: Iterable[Sequence[Array]]
    ) -> "Samples":
        """Write samples that come a few at a time; see `write`.

        Arguments:
            shapes: shape and element type of one sample in each array.
            count: how many there are.
            parts: arrays for consecutive samples, of these together.
        """
        like = {
            str(number): np.broadcast_to(np.zeros((), dtype.newbyteorder("=")), (count, *shape))
            for number, (shape, dtype) in enumerate(shapes)
        }
        header = header_of(like)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(struct.pack("<Q", len(header)) + header)
                begin = file.tell()
                places = [json.loads(header)[key]["data_offsets"][0] + begin for key in like]
                for part in parts:
                    for number, (array, (_, dtype)) in enumerate(zip(part, shapes, strict=True)):
                        data = np.ascontiguousarray(array, dtype.newbyteorder("="))
                        file.seek(places[number])
                        file.write(data.data)
                        places[number] = file.tell()
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
        return Samples.open(path)

    @staticmethod
    def open(path: Path) -> "Samples":
        """Map what `write` wrote into memory; the bytes may come from anywhere.

        Raises:
            SamplesCorrupt: the file holds something else.
        """
        try:
            arrays = map_arrays(path)
        except (SafetensorsCorrupt, SafetensorsForeign, SafetensorsTruncated) as error:
            raise SamplesCorrupt(f"the samples cannot be read: {error}") from None
        names = [str(number) for number in range(len(arrays))]
        lengths = {array.shape[0] if array.ndim else None for array in arrays.values()}
        if set(names) != set(arrays) or len(lengths) != 1 or None in lengths:
            raise SamplesCorrupt(
                f"{path} holds no samples: expected arrays named 0, 1, ... with first axes of one length; "
                f"it has {', '.join(sorted(arrays)[:8]) or 'nothing'}"
            )
        return Samples(path, tuple(arrays[name] for name in names))

    @property
    def count(self) -> int:
        """How many samples there are."""
        return int(self.arrays[0].shape[0])

    def in_batches(self, size: int) -> Iterator[tuple[Array, ...]]:
        """The samples in order, in whole batches; a rest that fills none is left out."""
        for first in range(0, self.count - size + 1, size):
            yield tuple(array[first : first + size] for array in self.arrays)


@dataclass(frozen=True, eq=False)
class SampleBatches:
    """Every sample once in an order drawn for each epoch, then all of them again in another.

    The order of an epoch sorts raw numbers of the counter-based generator Philox4x64-10 with key (seed, epoch), which NumPy
    keeps stable between versions.

    Arguments:
        samples: what is drawn from.
        batch_size: samples in a batch.
        seed: 0 <= seed < 2^64.

    Raises:
        TooFewSamples: they do not fill one batch.
        InvalidBatches: the size or the seed is out of range.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011, section 3.3.
    """

    samples: Samples
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not 0 <= self.seed < 1 << 64:
            raise InvalidBatches(
                f"Batches of {self.batch_size} samples with seed {self.seed} were asked for; expected at least 1, and "
                "0 <= seed < 2^64."
            )
        if self.samples.count < self.batch_size:
            raise TooFewSamples(
                f"the training part has {self.samples.count} samples, which do not fill a batch of {self.batch_size}"
            )

    @property
    def tokens_per_batch(self) -> int:
        """A sample counts as one token."""
        return self.batch_size

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Shape and element type of each array of a batch."""
        return tuple(((self.batch_size, *array.shape[1:]), array.dtype) for array in self.samples.arrays)

    def batch(self, index: int) -> tuple[Array, ...]:
        """Make one batch.

        Arguments:
            index: 0 <= index < 2^64, in any order.

        Raises:
            InvalidBatches: the index is out of range.
        """
        if not 0 <= index < 1 << 64:
            raise InvalidBatches(f"Batch {index} was asked for; expected 0 <= index < 2^64.")
        chosen: list[npt.NDArray[np.int64]] = []
        place, wanted = index * self.batch_size, self.batch_size
        while wanted:
            epoch, offset = divmod(place, self.samples.count)
            rows = _shuffled(self.samples.count, self.seed, epoch % _SPLIT)[offset : offset + wanted]
            chosen.append(rows)
            place, wanted = place + len(rows), wanted - len(rows)
        rows = np.concatenate(chosen)
        return tuple(np.ascontiguousarray(array[rows]) for array in self.samples.arrays)


def split(count: int, batch: int, seed: int) -> tuple[Rows, Rows]:
    """Divide samples at random into a part for training and one for validation.

    Arguments:
        count: of samples.
        batch: samples in a batch that is evaluated; validation has a whole number of these, about a tenth of all.
        seed: of the choice.

    Returns:
        The samples of both by their numbers.

    Raises:
        TooFewSamples: there are not two batches of them.
    """
    if count < 2 * batch:
        raise TooFewSamples(
            f"the data has {count} samples; a batch of {batch} for training and one for validation need {2 * batch}"
        )
    held_out = max(1, round(count * VALIDATION_FRACTION / batch)) * batch
    order = _shuffled(count, seed, _SPLIT)
    return order[held_out:], order[:held_out]


_shuffled = functools.lru_cache(maxsize=2)(permutation)
