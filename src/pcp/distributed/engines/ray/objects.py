"""Blobs as objects of Ray: on one node nobody copies them, between nodes Ray moves them."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from pcp.distributed.messages import Blob
from pcp.distributed.wire import BlobStore, Traffic, TransferError
from pcp.distributed.wire.blob_files import BlobMissing, blob_of
from pcp.distributed.wire.frames import FrameKind
from pcp.training.data.safetensors_file import view_arrays

SHEPHERD = "shepherd"
"""The Shepherd's actor, in the namespace of its run."""

POLL_SECONDS = 0.5
"""How often who waits for the Shepherd looks whether it still should."""


class ObjectStore(BlobStore):
    """A worker's blobs. What needs a file, such as the data, gets one when its path is asked for.

    Arguments:
        folder: for those files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, shared=True)
        self._guard = threading.Lock()
        self._objects: dict[bytes, tuple[Any, npt.NDArray[np.uint8]]] = {}

    def hold(self, blob: Blob, reference: Any) -> None:
        """Keep an object whose bytes are those of a blob.

        Raises:
            TransferError: it has another size.
        """
        content = ray.get(reference)
        if content.size != blob.size:
            raise TransferError(f"an object of {content.size} bytes came for a blob of {blob.size}")
        with self._guard:
            self._objects[blob.digest] = (reference, content)

    def reference(self, blob: Blob) -> Any:
        """The object of a blob.

        Raises:
            BlobMissing: it is not here.
        """
        return self._object(blob)[0]

    def has(self, blob: Blob) -> bool:
        """Whether the blob is here."""
        return blob.digest in self._objects

    def put(self, *pieces: bytes | bytearray | memoryview) -> Blob:
        """Store some bytes, given in one piece or several, and return their identity."""
        blob = blob_of(*pieces)
        if not self.has(blob):
            self.hold(blob, ray.put(np.concatenate([np.frombuffer(piece, np.uint8) for piece in pieces])))
        return blob

    def get(self, blob: Blob) -> bytes:
        """The bytes of a blob.

        Raises:
            BlobMissing: it is not here.
        """
        return self._object(blob)[1].tobytes()

    def arrays(self, blob: Blob, largest_header: int) -> tuple[dict[str, npt.NDArray[Any]], str]:
        """The arrays in a blob, where Ray has them in memory; see `BlobStore.arrays`."""
        content = self._object(blob)[1]
        return view_arrays(super().path(blob.digest), content, largest_header), blob.digest.hex()

    def path(self, digest: bytes) -> Path:
        """A file with the bytes of a blob."""
        path = super().path(digest)
        with self._guard:
            if digest in self._objects and not path.exists():
                new = path.with_name(f"{path.name}.{os.getpid()}")
                self._objects[digest][1].tofile(new)
                os.replace(new, path)
        return path

    def remove(self, digest: bytes) -> None:
        """Forget a blob; Ray deletes its object when nobody uses it any more."""
        with self._guard:
            self._objects.pop(digest, None)
        super().path(digest).unlink(missing_ok=True)

    def keep_only(self, digests: Any) -> int:
        """Forget every blob but these; returns how many that were."""
        unwanted = set(self._objects) - set(digests)
        for digest in unwanted:
            self.remove(digest)
        return len(unwanted)

    def _object(self, blob: Blob) -> tuple[Any, npt.NDArray[np.uint8]]:
        with self._guard:
            entry = self._objects.get(blob.digest)
        if entry is None:
            raise BlobMissing(f"blob {blob.digest.hex()[:16]} of {blob.size} bytes is not here")
        return entry


class ObjectCarrier:
    """Hands blobs to the Shepherd, and takes them from there, as references to objects.

    Arguments:
        worker: whose it is.
        traffic: counts the bytes that are behind the references.
    """

    def __init__(self, worker: str, traffic: Traffic) -> None:
        self._worker, self._traffic = worker, traffic
        self._closed = threading.Event()

    def fetch(self, blob: Blob, store: ObjectStore) -> None:
        """Take a blob.

        Raises:
            TransferError: the Shepherd does not have it, or is gone.
        """
        if store.has(blob):
            return
        [reference] = self._ask("fetch", blob)
        try:
            store.hold(blob, reference)
        except ray.exceptions.RayError as error:
            raise TransferError(f"blob {blob.digest.hex()[:16]} was lost on its way: {error}") from None
        self._traffic.count_received(FrameKind.CHUNK, blob.size)

    def push(self, blob: Blob, store: ObjectStore) -> None:
        """Hand a blob over; when this returns the Shepherd has it on disk.

        Raises:
            TransferError: the Shepherd does not take it, or is gone.
            BlobMissing: it is not here.
        """
        self._ask("push", self._worker, blob, [store.reference(blob)])
        self._traffic.count_sent(FrameKind.CHUNK, blob.size)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._closed.set()

    def _ask(self, what: str, *arguments: Any) -> Any:
        try:
            call = getattr(ray.get_actor(SHEPHERD), what).remote(*arguments)
            while not ray.wait([call], timeout=POLL_SECONDS)[0]:
                if self._closed.is_set():
                    raise TransferError("the worker stops")
            return ray.get(call)
        except ray.exceptions.RayTaskError as error:
            raise TransferError(f"the Shepherd says: {error.cause}") from None
        except (ray.exceptions.RayError, ValueError) as error:
            raise TransferError(f"the Shepherd is gone: {error}") from None
