"""What a worker offers another: the number of its exchange, its weights and its slow weights, as a blob of fixed size."""

import hashlib
import uuid
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.wire.blobs import BlobStore

_NUMBER_BYTES = 8
_CONTENT = np.dtype("<f4")

Vector = npt.NDArray[np.float32]


def offer_bytes(size: int) -> int:
    """Bytes of an offer of so many parameters."""
    return _NUMBER_BYTES + 2 * size * _CONTENT.itemsize


def store_offer(store: BlobStore, number: int, theta: Any, slow: Any) -> Blob:
    """Store an offer.

    Arguments:
        number: of the exchange, below 2^63.
        theta: weights, flat.
        slow: slow weights, flat.

    Raises:
        BlobTooLarge, StoreFull: there is no room for it.
    """
    arrays = np.array([number], "<u8"), *(np.ascontiguousarray(each, _CONTENT) for each in (theta, slow))
    parts = [array.data.cast("B") for array in arrays]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    blob = Blob(digest.digest(), sum(len(part) for part in parts))
    if not store.has(blob):
        with store.begin(blob, f"offer-{uuid.uuid4().hex}") as partial:
            for part in parts:
                partial.write(part)
            partial.finish()
    return blob


def number_of(store: BlobStore, blob: Blob) -> int:
    """The number of an offer's exchange, as its maker says.

    Raises:
        BlobMissing, StoreError: it is not in the store, or cannot be read.
    """
    with store.open(blob) as reader:
        return int(np.frombuffer(reader.read(0, _NUMBER_BYTES), "<u8")[0])


def load_offer(store: BlobStore, blob: Blob, size: int) -> tuple[Vector, Vector]:
    """Weights and slow weights of an offer that came from another worker.

    Raises:
        ArraysRefused: it has another size, or holds infinities or NaN.
        BlobMissing: it is not in the store.
    """
    if blob.size != offer_bytes(size):
        raise ArraysRefused(f"an offer of {blob.size} bytes came; expected {offer_bytes(size)}")
    content = np.frombuffer(store.get(blob), _CONTENT, offset=_NUMBER_BYTES)
    if not np.isfinite(content).all():
        raise ArraysRefused("an offer holds infinities or NaN")
    return content[:size], content[size:]
