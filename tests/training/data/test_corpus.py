"""The text of a corpus whole in memory, and what is said when there is none."""

import hashlib
import os
import tomllib
from pathlib import Path

import pytest

from pcp.training.data.corpus import load_text
from pcp.training.data.kinds.kind import CorpusNotText
from pcp.training.data.kinds.shakespeare import DIGEST
from pcp.training.data.kinds.source import EmptyCorpus, MissingCorpus


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    data = "\ufeffÉlan\r\nvital \n\n".encode()
    (tmp_path / "text.txt").write_bytes(data)
    assert load_text(str(tmp_path / "text.txt")) == data.decode()


def test_the_default_is_shakespeare_to_the_byte() -> None:
    text = load_text()
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST
    assert (len(text), len(set(text))) == (5_057_321, 84)


def test_the_default_is_packed_into_the_wheel() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "**/*.xz" in project["tool"]["setuptools"]["package-data"]["pcp"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpus, match=r"no corpus at .*none\.txt\. Give --data a file, a folder"):
        load_text(str(tmp_path / "none.txt"))


def test_unreadable_file(tmp_path: Path) -> None:
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    with pytest.raises(MissingCorpus, match="cannot be read: Too many levels of symbolic links"):
        load_text(str(tmp_path / "loop"))


def test_empty_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpus, match=r"has no files\. Give --data"):
        load_text(str(tmp_path))
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(EmptyCorpus, match=r"empty\.txt is empty\. Give a file with something in it"):
        load_text(str(tmp_path / "empty.txt"))


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 noir")
    with pytest.raises(CorpusNotText, match=r"not UTF-8 text: byte 0xe9 at offset 3\. .*--tokenizer bytes"):
        load_text(str(tmp_path / "latin.txt"))
    (tmp_path / "cut.txt").write_bytes("é".encode()[:1])
    with pytest.raises(CorpusNotText, match="not UTF-8 text: byte 0xc3 at offset 0"):
        load_text(str(tmp_path / "cut.txt"))


def test_the_place_of_a_wrong_byte_is_that_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcp.training.data.kinds.plain_text.HEAD_BYTES", 4)
    for data, message in (
        (b"abcdefgh\0", "byte 0x00 at offset 8"),
        (b"abcdefg\xc3(", "byte 0xc3 at offset 7"),
        (b"abcdefgh\xc3", "byte 0xc3 at offset 8"),
    ):
        (tmp_path / "x.txt").write_bytes(data)
        with pytest.raises(CorpusNotText, match=message):
            load_text(str(tmp_path / "x.txt"))
