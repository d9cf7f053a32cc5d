"""Nested arrays as blobs: a safetensors file under its digest, named by the places in the nesting."""

from typing import Any

import numpy as np

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError
from pcp.ir import TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.training.data.safetensors_file import (
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    header_of,
    pieces_of,
)

SPARE_HEADER_BYTES = 1 << 16
"""By how much a header may be longer than that of what is expected, and still be read, to say what is wrong with it."""


NOT_ARRAYS = SafetensorsCorrupt, SafetensorsForeign, SafetensorsTruncated
"""What a blob that is no file of arrays is refused by, while it is read."""


class ArraysRefused(PCPError):
    """A blob that does not hold the arrays that were asked for, or holds NaN or infinity."""


class AmbiguousNames(PCPError):
    """Nested arrays of which two have the same dotted name."""


def no_arrays(blob: Blob, error: PCPError) -> ArraysRefused:
    """The error that a blob is which is no file of arrays."""
    return ArraysRefused(f"blob {blob.digest.hex()[:16]} is not a file of arrays: {error}")


def store_arrays(store: BlobStore, value: Any) -> Blob:
    """Store nested arrays; equal arrays give equal blobs.

    Raises:
        AmbiguousNames: two of them have one name.
        BlobTooLarge, StoreFull: there is no room for them.
    """
    leaves, tree = flatten(value)
    arrays = {name: np.asarray(leaf) for name, leaf in zip(tree.names(), leaves, strict=True)}
    if len(arrays) != len(leaves):
        raise AmbiguousNames(
            f"{len(leaves)} arrays have only {len(arrays)} names between them: a key with a dot in it looks like "
            "two keys; name it otherwise"
        )
    return store.put(*pieces_of(arrays))


def load_arrays(
    store: BlobStore, blob: Blob, tree: Tree, specs: list[TensorSpec], finite: bool = False
) -> Any:
    """The nested arrays of a blob.

    Arguments:
        tree: the expected nesting.
        specs: the expected shapes and element types of the leaves, in order.
        finite: refuse infinities and NaN.

    Raises:
        ArraysRefused: the blob holds something else.
        BlobMissing: it is not in the store.
    """
    names = tree.names()
    expected = {
        name: np.broadcast_to(np.empty((), spec.dtype.numpy), spec.shape)
        for name, spec in zip(names, specs, strict=True)
    }
    try:
        arrays, digest = store.arrays(blob, len(header_of(expected)) + SPARE_HEADER_BYTES)
    except NOT_ARRAYS as error:
        raise no_arrays(blob, error) from None
    if digest != blob.digest.hex():
        raise ArraysRefused(f"blob {blob.digest.hex()[:16]} was changed on disk; its digest is {digest[:16]}")
    if set(arrays) != set(names):
        odd = sorted(set(arrays) ^ set(names))[0]
        raise ArraysRefused(
            f"blob {blob.digest.hex()[:16]} has other arrays than expected; the first is {odd!r}"
        )
    for name, spec in zip(names, specs, strict=True):
        if (arrays[name].shape, arrays[name].dtype) != (spec.shape, spec.dtype.numpy):
            actual = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise ArraysRefused(
                f"array {name!r} of blob {blob.digest.hex()[:16]} is {actual}; expected {spec}"
            )
        if finite and not np.isfinite(_checkable(arrays[name])).all():
            raise ArraysRefused(f"array {name!r} of blob {blob.digest.hex()[:16]} holds infinities or NaN")
    return tree.unflatten(arrays[name] for name in names)


def _checkable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that NumPy can tell finite numbers in; the short floating-point types are not its own."""
    return array if array.dtype.kind in "fciub" else array.astype(np.float32)
