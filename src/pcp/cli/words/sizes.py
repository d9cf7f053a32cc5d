"""Sizes in bytes, as every command takes them: `8GiB`."""

import argparse
import re

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?((?:[KMGT]i?)?B|)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base ** (power + 1)
    for power, letter in enumerate("kmgt")
    for suffix, base in (("b", 1000), ("ib", 1024))
}


def size(text: str) -> int:
    """The bytes that a text as `8GiB`, `500 MB` or `4096` stands for.

    Raises:
        argparse.ArgumentTypeError: it is no size above 0.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or not (count := int(float(match[1]) * _UNITS[match[2].lower()])):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; give a number and a unit, such as 8GiB (of 2^30 bytes) or 20GB (of 10^9)"
        )
    return count
