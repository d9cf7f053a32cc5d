"""Images in a folder for each class, as the samples that a loss takes: resized, in its layout, labelled with their class."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import Argument
from pcp.training.data.kinds.source import Part, Source
from pcp.training.data.sample_arguments import WrongSamples
from pcp.training.extras import import_extra
from pcp.training.recipes.loss_program import LossProgram

log = logging.getLogger("pcp.training.data.image_samples")

Array = np.ndarray[Any, Any]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""How an image of so many channels is called by Pillow."""
_AT_ONCE = 64


class ImageUnreadable(PCPError):
    """A file that is called an image, and is none or is damaged."""


@dataclass(frozen=True)
class ImageSamples:
    """Images and labels for a loss.

    Arguments:
        image, label: which of the loss's arguments are these; the label may be None.
        entries: the arguments that are the batch.
        classes: names of folders, in order; their places are the labels.
    """

    image: int
    label: int | None
    entries: tuple[Argument, ...]
    classes: tuple[str, ...]

    @staticmethod
    def of(source: Source, loss: LossProgram) -> "ImageSamples":
        """How the images of a corpus are given to a loss.

        Raises:
            WrongSamples: it does not take images, or takes something beside images and labels.
        """
        entries = loss.batch
        image = next((index for index, entry in enumerate(entries) if _layout(entry) is not None), None)
        others = [index for index in range(len(entries)) if index != image]
        labels = [
            index
            for index in others
            if entries[index].spec.dtype.is_integer and len(entries[index].spec.shape) == 1
        ]
        if image is None or len(others) > 1 or others != labels:
            raise WrongSamples(
                f"{source.data} holds images, and the loss takes batches of {loss.describe_batch()}; expected an array of "
                "images, (batch, height, width, channels) or (batch, channels, height, width) with 1, 3 or 4 channels, and "
                "labels, integers of shape (batch)"
            )
        parts = source.parts + source.validation
        classes = tuple(sorted({part.path.parent.name for part in parts}))
        if labels and len(classes) < 2:
            raise WrongSamples(
                f"the images of {source.data} lie in one folder, {classes[0]!r}; expected a folder for "
                "each class, whose name it is"
            )
        if labels:
            names = ", ".join(f"{number} {name}" for number, name in enumerate(classes[:12]))
            log.warning("%d images of %d classes: %s", len(parts), len(classes), names)
        return ImageSamples(image, labels[0] if labels else None, entries, classes)

    @property
    def shapes(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and element type of a sample in each array."""
        return [(entry.spec.shape[1:], entry.spec.dtype.numpy) for entry in self.entries]

    def read(self, parts: Sequence[Part]) -> Iterator[list[Array]]:
        """The arrays of some images at a time, in order.

        Raises:
            ImageUnreadable: a file is no image.
            MissingExtra: Pillow is not installed.
        """
        for first in range(0, len(parts), _AT_ONCE):
            some = [part.path for part in parts[first : first + _AT_ONCE]]
            arrays: list[Array] = [np.empty(0)] * len(self.entries)
            arrays[self.image] = np.stack([self._pixels(path) for path in some])
            if self.label is not None:
                places = [self.classes.index(path.parent.name) for path in some]
                arrays[self.label] = np.array(places, self.shapes[self.label][1])
            yield arrays

    def _pixels(self, path: Path) -> Array:
        pillow = import_extra("PIL.Image", "images", f"Reading {path}")
        layout = _layout(self.entries[self.image])
        assert layout is not None
        height, width, channels, channels_first = layout
        try:
            with pillow.open(path) as image:
                fitted = _of_8_bits(image, pillow).convert(_MODES[channels])
                if fitted.size != (width, height):
                    fitted = fitted.resize((width, height), pillow.Resampling.BICUBIC)
                pixels = np.asarray(fitted, np.uint8).reshape(height, width, channels)
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
            raise ImageUnreadable(f"{path} cannot be read as an image: {error}") from None
        shape, dtype = self.shapes[self.image]
        ordered = pixels.transpose(2, 0, 1) if channels_first else pixels
        scaled = ordered if dtype.kind in "iu" else ordered / np.float32(255)
        return scaled.astype(dtype).reshape(shape)


def _of_8_bits(image: Any, pillow: Any) -> Any:
    """The same shades; Pillow's own conversion makes all of 256 and more white."""
    if not image.mode.startswith("I;16"):
        return image
    return pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def _layout(entry: Argument) -> tuple[int, int, int, bool] | None:
    """Height, width and channels of images in an array of a batch, and whether channels come first; None for something else."""
    shape = entry.spec.shape[1:]
    if len(shape) == 2 and not entry.spec.dtype.is_integer:
        return shape[0], shape[1], 1, False
    if len(shape) != 3:
        return None
    places = [place for place in (2, 0) if shape[place] in _MODES]
    # Of two that might be channels, three are.
    place = next((each for each in places if shape[each] == 3), places[0] if places else None)
    if place == 2:
        return shape[0], shape[1], shape[2], False
    if place == 0:
        return shape[1], shape[2], shape[0], True
    return None
