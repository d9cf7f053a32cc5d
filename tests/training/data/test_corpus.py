"""Corpora from files, and what is said when there is none."""

import hashlib
import os
import tomllib
from pathlib import Path

import pytest

from pcp.training.data.corpus import DEFAULT_DIGEST, CorpusNotText, EmptyCorpus, MissingCorpus, load_corpus


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    data = "\ufeffÉlan\r\nvital \n\n".encode()
    (tmp_path / "text.txt").write_bytes(data)
    loaded = load_corpus(tmp_path / "text.txt")
    assert loaded.data == data
    assert loaded.text == data.decode()
    assert loaded.name == str(tmp_path / "text.txt")
    assert loaded.digest == hashlib.sha256(data).hexdigest()


def test_the_default_is_shakespeare_to_the_byte() -> None:
    loaded = load_corpus()
    assert loaded == load_corpus("shakespeare")
    assert (loaded.name, loaded.digest) == ("shakespeare", DEFAULT_DIGEST)
    assert (len(loaded.text), len(set(loaded.text))) == (5_057_321, 84)


def test_the_default_is_packed_into_the_wheel() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "**/*.xz" in project["tool"]["setuptools"]["package-data"]["pcp"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpus, match=r"no corpus at .*none\.txt\. Give --data a text file"):
        load_corpus(tmp_path / "none.txt")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpus, match="is a folder, not a file"):
        load_corpus(tmp_path)


def test_unreadable_file(tmp_path: Path) -> None:
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    with pytest.raises(MissingCorpus, match="cannot be read: Too many levels of symbolic links"):
        load_corpus(tmp_path / "loop")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(EmptyCorpus, match=r"empty\.txt is empty\. Give --data a text file"):
        load_corpus(tmp_path / "empty.txt")


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 noir")
    loaded = load_corpus(tmp_path / "latin.txt")
    assert loaded.data == b"caf\xe9 noir"
    with pytest.raises(CorpusNotText, match="not UTF-8 text: byte 0xe9 at offset 3"):
        _ = loaded.text
