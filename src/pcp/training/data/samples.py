"""Samples that are arrays: files that hold them, and a shuffled order in which batch `i` is known from the seed and `i`."""

import functools
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically
from pcp.training.data.batches import InvalidBatches, permutation
from pcp.training.data.safetensors_file import (
    Array,
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    read_arrays,
    write_arrays,
)

VALIDATION_FRACTION = 0.1
_SPLIT = 2**64 - 1


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
    def write(path: Path, arrays: Sequence[Array]) -> "Samples":
        """Write arrays to a file, which appears whole or not at all."""
        file = io.BytesIO()
        write_arrays(file, {str(number): array for number, array in enumerate(arrays)})
        write_atomically(path, file.getbuffer())
        return Samples(path, tuple(arrays))

    @staticmethod
    def open(path: Path) -> "Samples":
        """Read what `write` wrote; the bytes may come from anywhere.

        Raises:
            SamplesCorrupt: the file holds something else.
        """
        try:
            arrays, _ = read_arrays(path)
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


def split(arrays: Sequence[Array], batch: int, seed: int) -> tuple[list[Array], list[Array]]:
    """Divide samples at random into a part for training and one for validation.

    Arguments:
        arrays: first axes count the samples.
        batch: samples in a batch that is evaluated; validation has a whole number of these, about a tenth of all.
        seed: of the choice.

    Raises:
        TooFewSamples: there are not two batches of them.
    """
    count = len(arrays[0])
    if count < 2 * batch:
        raise TooFewSamples(
            f"the data has {count} samples; a batch of {batch} for training and one for validation need {2 * batch}"
        )
    held_out = max(1, round(count * VALIDATION_FRACTION / batch)) * batch
    order = _shuffled(count, seed, _SPLIT)
    return [array[order[held_out:]] for array in arrays], [array[order[:held_out]] for array in arrays]


_shuffled = functools.lru_cache(maxsize=2)(permutation)
