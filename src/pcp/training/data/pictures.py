"""Images to learn to make: files, or arrays, as u8[samples, height, width, channels], with labels where there are classes."""

from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import Argument, Role
from pcp.ir.types import DType, TensorSpec
from pcp.training.data.array_file import SUFFIXES, map_array_file
from pcp.training.data.image_samples import ImageSamples
from pcp.training.data.kinds.source import find_source
from pcp.training.data.kinds.table import IMAGES

Array = np.ndarray[Any, Any]

LARGEST = 32
"""Pixels of a side of images from files, where no size is asked for."""
_CHANNELS = 3
_MOST_CLASSES = 1 << 16
_EXPECTED = (
    "an array of images, (samples, height, width[, channels]) with 1, 3 or 4 channels, u8 or floats from 0 to 1 or -1 to 1, "
    "and, where there are classes, whole numbers (samples,) from 0 on"
)


class WrongPictures(PCPError):
    """Data that a model of images cannot learn from."""


def read_pictures(data: str, size: int) -> list[Array]:
    """Images, and labels where there are classes.

    Arguments:
        data: a folder of image files, where folders in it are classes; or an `.npz` or safetensors file with an array of
            images, and perhaps one of labels.
        size: pixels of a side; 0: of arrays as they are, of files `LARGEST`.

    Returns:
        u8[samples, height, width, channels], height and width equal, and i32[samples] if there are classes.

    Raises:
        WrongPictures: they are something else.
        MissingCorpus, ImageUnreadable, MissingExtra, UnreadableFile: they cannot be read.
    """
    if Path(data).suffix in SUFFIXES:
        return _of_arrays(Path(data), size)
    source = find_source(data)
    if source.parts[0].kind is not IMAGES:
        raise WrongPictures(
            f"data is {data}, {source.parts[0].kind.name}; a model of images learns from a folder of image files, with a "
            f"folder in it for each class if there are some, or from an .npz file with {_EXPECTED}"
        )
    parts = source.parts + source.validation
    classes = tuple(sorted({part.path.parent.name for part in parts}))
    side = size or LARGEST
    entries = [Argument("images", TensorSpec((1, side, side, _CHANNELS), DType.u8), Role.input)]
    if len(classes) > 1:
        entries.append(Argument("labels", TensorSpec((1,), DType.i32), Role.input))
    samples = ImageSamples(0, 1 if len(classes) > 1 else None, tuple(entries), classes)
    return [np.concatenate(arrays) for arrays in zip(*samples.read(parts), strict=True)]


def _of_arrays(path: Path, size: int) -> list[Array]:
    arrays = map_array_file(path)
    images = [array for array in arrays.values() if array.ndim in (3, 4)]
    labels = [array for array in arrays.values() if array.ndim == 1 and array.dtype.kind in "iu"]
    if len(images) != 1 or len(labels) > 1 or len(images) + len(labels) != len(arrays):
        held = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in arrays.items())
        raise WrongPictures(f"{path} holds {held or 'nothing'}; expected {_EXPECTED}")
    pixels = images[0] if images[0].ndim == 4 else images[0][..., None]
    if pixels.shape[3] not in (1, 3, 4) or pixels.shape[1] != pixels.shape[2] or not len(pixels):
        raise WrongPictures(
            f"the images of {path} are {pixels.dtype}{list(pixels.shape)}; expected square ones, channels last: {_EXPECTED}"
        )
    if size not in (0, pixels.shape[1]):
        raise WrongPictures(
            f"size is {size}, but the images of {path} have {pixels.shape[1]} pixels a side; leave it out: only files are "
            "resized"
        )
    if labels and (len(labels[0]) != len(pixels) or labels[0].min() < 0 or labels[0].max() >= _MOST_CLASSES):
        ends = f" from {labels[0].min()} to {labels[0].max()}" if len(labels[0]) else ""
        raise WrongPictures(
            f"{path} has {len(pixels)} images, and {len(labels[0])} labels{ends}; expected one from 0 to {_MOST_CLASSES - 1} "
            "for each image"
        )
    return [_bytes_of(pixels, path), *(each.astype(np.int32) for each in labels)]


def _bytes_of(pixels: Array, path: Path) -> Array:
    if pixels.dtype == np.uint8:
        return pixels
    low, high = float(pixels.min()), float(pixels.max())
    if pixels.dtype.kind != "f" or not -1 <= low <= high <= 1:
        raise WrongPictures(
            f"the images of {path} are {pixels.dtype} from {low:g} to {high:g}; expected u8, or floats from 0 to 1 or -1 to 1: "
            "scale them"
        )
    unit = pixels if low >= 0 else (pixels + 1) / 2
    return np.asarray(np.round(unit * 255), np.uint8)
