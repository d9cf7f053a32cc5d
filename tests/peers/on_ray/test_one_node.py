"""On a node: a worker's blobs as objects, shared and not copied; a file where one is needed; what each worker gets."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.peers.on_ray.conftest import FORKS, STORE_BYTES

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, load_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector, store_vector
from pcp.distributed.wire.blob_files import BlobMissing, blob_of
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir import DType, TensorSpec
from pcp.ir.tree import flatten

pytest.importorskip("ray")

import ray

from pcp.distributed.engines.ray.cluster import ClusterTooSmall, Share, share_of_cluster
from pcp.distributed.engines.ray.objects import ObjectCarrier, ObjectStore, TransferError
from pcp.distributed.wire import Traffic

pytestmark = FORKS


@pytest.fixture(scope="module")
def node() -> Iterator[None]:
    """A cluster of one node."""
    ray.init(
        address="local",
        num_cpus=1,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


@pytest.fixture
def store(node: None, tmp_path: Path) -> ObjectStore:  # noqa: ARG001 - a fixture's
    return ObjectStore(tmp_path / "blobs")


def test_a_fragment_is_read_where_ray_holds_it(store: ObjectStore, tmp_path: Path) -> None:
    vector = np.random.default_rng(1).standard_normal(1 << 16).astype(np.float32)
    blob = store_vector(BlobStore(tmp_path / "shepherds"), vector)
    assert store_vector(store, vector) == blob, "equal arrays are equal blobs, whatever the store"
    found = load_vector(store, blob, vector.size, finite=True)
    assert (found == vector).all()
    held = ray.get(store.reference(blob))
    assert np.shares_memory(found, held)
    assert not found.flags.writeable
    assert list(store.folder.iterdir()) == []


def test_what_one_worker_puts_another_takes(store: ObjectStore, tmp_path: Path) -> None:
    blob = store.put(b"programs and data")
    other = ObjectStore(tmp_path / "other")
    assert not other.has(blob)
    other.hold(blob, store.reference(blob))
    assert other.get(blob) == b"programs and data"
    with pytest.raises(TransferError, match="an object of 17 bytes came for a blob of 3"):
        other.hold(blob_of(b"abc"), store.reference(blob))


def test_a_file_is_made_where_one_is_asked_for(store: ObjectStore) -> None:
    blob = store.put(b"a corpus")
    assert store.path(blob.digest).read_bytes() == b"a corpus"
    with store.open(blob) as reader:
        assert reader.read(2, 6) == b"corpus"
    store.remove(blob.digest)
    assert not store.has(blob)
    assert list(store.folder.iterdir()) == []
    with pytest.raises(BlobMissing, match="of 8 bytes is not here"):
        store.get(blob)


def test_only_what_is_named_is_kept(store: ObjectStore) -> None:
    kept, other = store.put(b"kept"), store.put(b"other")
    assert store.keep_only([kept.digest]) == 1
    assert (store.has(kept), store.has(other)) == (True, False)


def test_what_holds_no_arrays_is_refused(store: ObjectStore) -> None:
    blob = store.put(b"no arrays at all")
    with pytest.raises(ArraysRefused, match="is not a file of arrays"):
        load_arrays(store, blob, flatten({"values": 0})[1], [TensorSpec((4,), DType.f32)])


def test_without_a_shepherd_a_transfer_fails_at_once(store: ObjectStore) -> None:
    carrier = ObjectCarrier("ada", Traffic())
    with pytest.raises(TransferError, match="the Shepherd is gone"):
        carrier.fetch(Blob(b"d" * 32, 5), store)
    with pytest.raises(TransferError, match="the Shepherd is gone"):
        carrier.push(store.put(b"an update"), store)


def test_what_a_worker_gets_of_the_node(node: None) -> None:  # noqa: ARG001 - a fixture's
    assert share_of_cluster(1, "cpu:0") == Share(1, 0, "cpu:0")
    with pytest.raises(
        ClusterTooSmall, match="2 workers were asked for, and the Ray cluster has 1 processors"
    ):
        share_of_cluster(2, "cpu:0")
    with pytest.raises(ClusterTooSmall, match="1 workers were asked for, and the Ray cluster has 0 GPUs"):
        share_of_cluster(1, "cuda:0")
