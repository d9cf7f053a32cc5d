"""What simulated workers store: vectors and pushes as files of arrays, and inner states as blobs of one number."""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import load_arrays, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.simulator import training
from pcp.distributed.simulator.machines.blob_disk import BlobDisk
from pcp.ir.tree import flatten


class StateTable:
    """Every inner state of a simulated run. In a blob a number stands for it, which is a hash of it."""

    def __init__(self) -> None:
        self._states: dict[int, dict[str, Any]] = {}

    def number(self, replica: Replica) -> int:
        """The number of the state in which a replica is."""
        inner = replica.inner()
        content = json.dumps(_plain(inner), sort_keys=True)
        number = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=7).digest())
        self._states[number] = copy.deepcopy(inner)
        return number

    def inner(self, number: int) -> dict[str, Any]:
        """The state of a number.

        Raises:
            Unusable: it is none.
        """
        if number not in self._states:
            raise training.Unusable(f"{number} is no inner state")
        return copy.deepcopy(self._states[number])


class SmallShelf:
    """What training and repetitions read and write, on a simulated disk."""

    def __init__(self, blobs: BlobDisk, table: StateTable, algorithm: Algorithm) -> None:
        self._blobs, self._table = blobs, table
        self._changes = training.coding(algorithm.download).specs

    def inner(self, blob: Blob) -> Mapping[str, Any]:
        """An inner state that another worker stored."""
        return self._table.inner(training.decode(self._blobs.get(blob)))

    def vector(self, fragment: int, blob: Blob) -> Any:  # noqa: ARG002 - all are of one size
        """A flat fragment."""
        return load_vector(self._blobs, blob, training.SIZE, finite=True).astype(np.float64)

    def change(self, fragment: int, blob: Blob) -> Any:  # noqa: ARG002 - all are of one size
        """What leads from one version of a fragment to the next."""
        leaves, tree = flatten(self._changes)
        return load_arrays(self._blobs, blob, tree, leaves, finite=True)

    def put_inner(self, replica: Replica) -> Blob:
        """Store the inner state of a replica."""
        return self._blobs.put(training.encode(self._table.number(replica)))

    def put_push(self, payload: dict[str, Any]) -> Blob:
        """Store an encoded push."""
        return store_arrays(self._blobs, payload)


def _plain(tree: Any) -> Any:
    """Nested dictionaries and lists of numbers."""
    if isinstance(tree, dict):
        return {key: _plain(each) for key, each in tree.items()}
    return (
        [_plain(each) for each in tree] if isinstance(tree, list) else np.asarray(tree, np.float64).tolist()
    )
