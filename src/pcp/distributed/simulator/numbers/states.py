"""Inner states of simulated workers as blobs of one number, and pieces that are repeated from them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.simulator import training
from pcp.distributed.simulator.machines.blob_disk import BlobDisk


class StateTable:
    """Every inner state of a simulated run. In a blob a number stands for it, which is a hash of it."""

    def __init__(self) -> None:
        self._states: dict[int, str] = {}

    def number(self, replica: Replica) -> int:
        """The number of the state in which a replica is."""
        content = json.dumps(_plain(replica.inner()), sort_keys=True)
        number = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=7).digest())
        self._states[number] = content
        return number

    def inner(self, number: int) -> dict[str, Any]:
        """The state of a number.

        Raises:
            Unusable: no state has the number.
        """
        if number not in self._states:
            raise training.Unusable(f"{number} is no inner state")
        state: dict[str, Any] = json.loads(self._states[number])
        return state | {"anchors": {key: training.Number(each) for key, each in state["anchors"].items()}}


class NumberShelf:
    """What a repetition reads and writes, on a simulated disk."""

    def __init__(self, blobs: BlobDisk, table: StateTable) -> None:
        self._blobs, self._table = blobs, table

    def inner(self, blob: Blob) -> Mapping[str, Any]:
        """An inner state that another worker stored."""
        return self._table.inner(training.decode(self._blobs.get(blob)))

    def vector(self, fragment: int, blob: Blob) -> training.Number:  # noqa: ARG002 - one number like another
        """A flat fragment."""
        return training.Number(training.decode(self._blobs.get(blob)))

    def change(self, fragment: int, blob: Blob) -> training.Number:
        """What leads from one version of a fragment to the next."""
        return self.vector(fragment, blob)

    def put_inner(self, replica: Replica) -> Blob:
        """Store the inner state of a replica."""
        return self._blobs.put(training.encode(self._table.number(replica)))

    def put_push(self, payload: dict[str, Any]) -> Blob:
        """Store an encoded push."""
        return self._blobs.put(training.encode(payload["value"]))


def _plain(tree: Any) -> Any:
    """Nested dictionaries and lists of whole numbers."""
    if isinstance(tree, dict):
        return {key: _plain(each) for key, each in tree.items()}
    return [_plain(each) for each in tree] if isinstance(tree, list) else int(tree)
