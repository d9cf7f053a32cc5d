"""The blob store: what is visible is right, what is partial can be resumed, what does not fit is refused."""

import errno
import hashlib
import os
import random
import threading
from pathlib import Path

import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.wire.blob_files import (
    BlobMissing,
    BlobTooLarge,
    DigestMismatch,
    PartialReplaced,
    StoreError,
    StoreFull,
    blob_of,
)
from pcp.distributed.wire.blobs import BlobStore

CONTENT = random.Random(7).randbytes(300_000)
BLOB = blob_of(CONTENT)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def names(store: BlobStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def test_put_and_get(store: BlobStore) -> None:
    assert not store.has(BLOB)
    assert store.put(CONTENT) == BLOB
    assert store.put(memoryview(CONTENT)) == BLOB
    assert store.has(BLOB)
    assert store.get(BLOB) == CONTENT
    assert names(store) == [BLOB.digest.hex()]
    assert store.total_bytes == len(CONTENT)
    with store.open(BLOB) as reader:
        assert reader.read(1000, 17) == CONTENT[1000:1017]
    assert store.get(store.put(b"")) == b""


def test_what_is_put_in_pieces_is_digested_once(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[int] = []

    class Counted:
        def __init__(self, content: bytes = b"") -> None:
            self._digest = original(content)

        def update(self, piece: bytes | memoryview) -> None:
            digested.append(memoryview(piece).nbytes)
            self._digest.update(piece)

        def digest(self) -> bytes:
            return bytes(self._digest.digest())

    original = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", Counted)
    assert store.put(CONTENT[:7], memoryview(CONTENT)[7:200_000], bytearray(CONTENT[200_000:])) == BLOB
    assert sum(digested) == len(CONTENT)
    monkeypatch.undo()
    assert store.get(BLOB) == CONTENT


def test_a_partial_blob_is_resumed_where_it_ended(store: BlobStore) -> None:
    with store.begin(BLOB, "ada") as partial:
        partial.write(CONTENT[:100_000])
        with pytest.raises(StoreError, match="is not complete: 100000 of 300000 bytes are here"):
            partial.finish()
    assert not store.has(BLOB)
    reopened = BlobStore(store.folder)
    assert reopened.total_bytes == 100_000
    with reopened.begin(BLOB, "ada") as partial:
        assert partial.offset == 100_000
        assert reopened.total_bytes == 300_000  # reserved
        partial.write(CONTENT[100_000:])
        partial.finish()
    assert reopened.get(BLOB) == CONTENT
    assert reopened.total_bytes == 300_000


def test_owners_do_not_share_partial_files(store: BlobStore) -> None:
    with store.begin(BLOB, "mallory") as poison, store.begin(BLOB, "ada") as partial:
        poison.write(b"x" * 300_000)
        partial.write(CONTENT)
        with pytest.raises(
            DigestMismatch, match=f"received as blob {BLOB.digest.hex()[:16]} have the digest"
        ):
            poison.finish()
        partial.finish()
    assert names(store) == [BLOB.digest.hex()]
    assert store.get(BLOB) == CONTENT


def test_wrong_bytes_are_removed_and_the_next_attempt_begins_anew(store: BlobStore) -> None:
    with store.begin(BLOB, "ada") as partial:
        partial.write(CONTENT[:-1] + b"!")
        with pytest.raises(DigestMismatch, match="they were removed, fetch them again"):
            partial.finish()
    assert names(store) == []
    assert store.total_bytes == 0
    with store.begin(BLOB, "ada") as partial:
        assert partial.offset == 0


def test_wrong_bytes_before_a_resume_are_noticed_too(store: BlobStore) -> None:
    with store.begin(BLOB, "ada") as partial:
        partial.write(b"!" + CONTENT[1:100_000])
    with store.begin(BLOB, "ada") as partial:
        partial.write(CONTENT[100_000:])
        with pytest.raises(DigestMismatch, match="have the digest"):
            partial.finish()


def test_a_newer_transfer_of_the_same_owner_takes_over(store: BlobStore) -> None:
    with store.begin(BLOB, "ada") as old:
        old.write(CONTENT[:1000])
        with store.begin(BLOB, "ada") as new:
            assert new.offset == 1000
            with pytest.raises(PartialReplaced, match="has taken over; this one must end"):
                old.write(CONTENT[1000:2000])
            old.close()
            new.write(CONTENT[1000:])
            new.finish()
    assert store.get(BLOB) == CONTENT


def test_many_threads_put_the_same_blob(store: BlobStore) -> None:
    threads = [threading.Thread(target=store.put, args=(CONTENT,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(store) == [BLOB.digest.hex()]
    assert store.total_bytes == len(CONTENT)


def test_limits(tmp_path: Path) -> None:
    store = BlobStore(tmp_path, maximum_blob_bytes=1000, maximum_total_bytes=1500)
    with pytest.raises(BlobTooLarge, match=r"has 300000 bytes; .* accepts at most 1000"):
        store.put(CONTENT)
    store.put(b"a" * 1000)
    with pytest.raises(StoreFull, match="1000 of 1500 bytes are taken; remove blobs or raise the limit"):
        store.put(b"b" * 600)
    assert len(names(store)) == 1
    with (
        store.begin(blob_of(b"c" * 500), "ada"),
        pytest.raises(StoreFull, match="1500 of 1500 bytes are taken"),
    ):
        store.begin(blob_of(b"d"), "ada")
    assert store.keep_only([]) == 1
    assert store.total_bytes == 0
    store.put(b"b" * 600)


def test_more_bytes_than_announced(store: BlobStore) -> None:
    with (
        store.begin(BLOB, "ada") as partial,
        pytest.raises(BlobTooLarge, match="300000 bytes, and 300001 arrived"),
    ):
        partial.write(CONTENT + b"!")


def test_a_disk_that_is_too_small_from_the_start(store: BlobStore) -> None:
    vast = Blob(bytes(32), 1 << 60)
    roomy = BlobStore(store.folder, maximum_blob_bytes=1 << 62, maximum_total_bytes=1 << 62)
    with pytest.raises(StoreFull, match="the disk is full; free space there or choose another folder"):
        roomy.begin(vast, "ada")
    assert roomy.total_bytes == 0


def test_a_disk_that_fills_up_in_the_middle(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, 50_000

    def small_disk(descriptor: int, data: memoryview, offset: int) -> int:
        if offset >= room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: room - offset], offset)

    with store.begin(BLOB, "ada") as partial:
        monkeypatch.setattr(os, "pwrite", small_disk)
        with pytest.raises(
            StoreFull, match="No space left on device; free space there or choose another folder"
        ):
            partial.write(CONTENT)
        assert partial.offset == room
        monkeypatch.setattr(os, "pwrite", real)
        partial.write(CONTENT[room:])
        partial.finish()
    assert store.get(BLOB) == CONTENT


def test_room_that_was_set_aside_is_given_back(store: BlobStore) -> None:
    large = Blob(bytes(32), 16 << 20)
    with store.begin(large, "ada") as partial:
        partial.write(b"abc")
        set_aside = partial.path.stat().st_blocks * 512
        if set_aside < large.size:
            pytest.skip("this file system sets no room aside")
        assert partial.path.stat().st_size == 3
    assert partial.path.stat().st_blocks * 512 < 1 << 20
    assert partial.path.read_bytes() == b"abc"


def test_what_is_missing_or_was_changed(store: BlobStore) -> None:
    with pytest.raises(BlobMissing, match=f"blob {BLOB.digest.hex()[:16]} of 300000 bytes is not in"):
        store.get(BLOB)
    store.put(CONTENT)
    store.path(BLOB.digest).write_bytes(b"!" + CONTENT[1:])
    with pytest.raises(DigestMismatch, match="was changed; remove it and fetch it again"):
        store.get(BLOB)
    with store.open(BLOB) as reader:
        os.truncate(store.path(BLOB.digest), 10)
        with pytest.raises(StoreError, match="should have 300000 bytes, but its file ends at 10"):
            reader.read(0, 100)


@pytest.mark.parametrize("owner", ["", "../ada", "a/b", ".hidden", "x" * 65, "a\n"])
def test_an_owner_that_cannot_be_part_of_a_file_name(store: BlobStore, owner: str) -> None:
    with pytest.raises(StoreError, match="cannot be the name of an owner of blobs"):
        store.begin(BLOB, owner)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot make the folder"):
        BlobStore(tmp_path / "file" / "blobs")


def test_forgotten_partials(store: BlobStore) -> None:
    with store.begin(BLOB, "ada") as partial:
        partial.write(b"abc")
        assert store.forget_partials() == 0
    assert store.forget_partials() == 1
    assert names(store) == []
    assert store.total_bytes == 0


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="this system opens whatever a name leads to")
@pytest.mark.parametrize("there", [True, False])
def test_a_name_that_leads_elsewhere_is_not_written_through(
    store: BlobStore, tmp_path: Path, there: bool
) -> None:
    blob, elsewhere = blob_of(b"content"), tmp_path / "precious"
    if there:
        elsewhere.write_bytes(b"a key")
    (store.folder / f"{blob.digest.hex()}.alice.part").symlink_to(elsewhere)
    with pytest.raises(StoreError, match=r"cannot write blob .* symbolic links"):
        store.begin(blob, "alice")
    assert (elsewhere.read_bytes() if there else elsewhere.exists()) == (b"a key" if there else False)
