"""A store that tells what peers have completed."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.shepherd.arrivals import ArrivalStore
from pcp.distributed.wire.blob_files import DigestMismatch, StoreFull, blob_of
from pcp.distributed.wire.blobs import BlobStore

CONTENT = np.random.default_rng(2).bytes(1000)


@pytest.fixture
def arrived() -> list[Blob]:
    return []


@pytest.fixture
def lacking() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def arrivals(store: BlobStore, arrived: list[Blob], lacking: list[tuple[int, str]]) -> ArrivalStore:
    return ArrivalStore(store, arrived.append, lambda size, error: lacking.append((size, str(error))))


def test_a_blob_is_told_of_when_all_of_it_is_here(
    arrivals: ArrivalStore, store: BlobStore, arrived: list[Blob]
) -> None:
    blob = blob_of(CONTENT)
    first = arrivals.begin(blob, "ada")
    first.write(CONTENT[:300])
    first.close()
    assert (arrived, arrivals.has(blob)) == ([], False)
    again = arrivals.begin(blob, "ada")
    assert again.offset == 300
    again.write(CONTENT[300:])
    assert (again.offset, arrived) == (1000, [])
    again.finish()
    again.close()
    assert arrived == [blob]
    with arrivals.open(blob) as reader:
        assert reader.read(0, 1000) == store.get(blob) == CONTENT


def test_wrong_content_is_not_told_of(arrivals: ArrivalStore, arrived: list[Blob]) -> None:
    blob = blob_of(CONTENT)
    sink = arrivals.begin(blob, "ada")
    sink.write(CONTENT[::-1])
    with pytest.raises(DigestMismatch):
        sink.finish()
    sink.close()
    assert arrived == []


def test_what_is_put_there_by_this_process_is_not_told_of(
    arrivals: ArrivalStore, arrived: list[Blob], tmp_path: Path
) -> None:
    blob = BlobStore(tmp_path / "blobs").put(CONTENT)
    assert arrivals.has(blob)
    assert arrived == []


def test_a_blob_that_there_is_no_room_for_is_told_of(
    arrivals: ArrivalStore, lacking: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    blob = blob_of(CONTENT)
    sink = arrivals.begin(blob, "ada")
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(StoreFull):
        sink.write(CONTENT)
    sink.close()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(StoreFull):
        arrivals.begin(blob, "bob")
    assert [size for size, error in lacking if "No space left" in error or "the disk is full" in error] == [
        1000
    ] * 2


def test_a_blob_that_came_in_pieces_is_told_of_once(arrivals: ArrivalStore, arrived: list[Blob]) -> None:
    blob, firsts = blob_of(CONTENT), (500, 0)
    pieces = [arrivals.begin_piece(blob, "ada", first, first + 500) for first in firsts]
    for piece, first in zip(pieces, firsts, strict=True):
        assert (arrived, arrivals.has(blob)) == ([], False)
        piece.write(CONTENT[first : first + 500])
        piece.finish()
    for piece in pieces:
        piece.close()
    assert arrived == [blob]
    assert arrivals.has(blob)
