"""Images beside one another in one PNG."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from pcp.ir.program_file import write_atomically

Array = np.ndarray[Any, Any]

_GAP = 1
_SMALLEST = 64
"""Pixels that a side of an image has at least in the picture: smaller ones are shown larger, each pixel as a square."""


def grid(images: Array) -> Array:
    """Images in rows of about as many as there are rows.

    Arguments:
        images: u8[count, height, width, channels].

    Returns:
        u8[height, width, channels], white where there is no image.
    """
    count, height, width, channels = images.shape
    times = max(1, math.ceil(_SMALLEST / max(height, width)))
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    each = (height * times + _GAP, width * times + _GAP)
    picture = np.full((rows * each[0] - _GAP, columns * each[1] - _GAP, channels), 255, np.uint8)
    for number, image in enumerate(images):
        top, left = (number // columns) * each[0], (number % columns) * each[1]
        shown = image.repeat(times, 0).repeat(times, 1)
        picture[top : top + shown.shape[0], left : left + shown.shape[1]] = shown
    return picture


def write_grid(images: Array, path: Path) -> None:
    """Write images beside one another as a PNG, which appears whole or not at all; images as of `grid`."""
    from matplotlib.image import imsave  # takes a moment that --help need not wait for

    picture = grid(images)
    pixels = picture.repeat(3, 2) if picture.shape[2] == 1 else picture
    file = io.BytesIO()
    imsave(file, pixels, format="png")
    write_atomically(path, file.getvalue())
