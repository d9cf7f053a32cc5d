"""Token files: written whole, mapped, and refused when they are not what was written."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.training.data.token_file import (
    TokenFile,
    TokenFileCorrupt,
    TokenFileForeign,
    TokenFileMissing,
    TokenFileNewer,
    TokenFileTruncated,
    write_token_file,
)
from pcp.training.data.token_range import TokenOutOfRange, check_tokens

TOKENS = np.random.default_rng(1).integers(0, 65, 1001).astype(np.uint16)


@given(st.lists(st.integers(0, 70_000 - 1), min_size=1, max_size=300), st.sampled_from([70_000, 1 << 20]))
def test_wide_tokens_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], size: int
) -> None:
    path = tmp_path_factory.mktemp("tokens") / "data.tokens"
    file = write_token_file(path, np.array(values, np.uint32), size)
    assert [*file.training.tolist(), *file.validation.tolist()] == values
    assert file.training.dtype == np.uint32


def test_split_type_digest_and_vocabulary(tmp_path: Path) -> None:
    written = write_token_file(tmp_path / "new" / "data.tokens", TOKENS, 65)
    file = TokenFile.open(tmp_path / "new" / "data.tokens")
    assert file.training.tolist() == TOKENS[:900].tolist()
    assert file.validation.tolist() == TOKENS[900:].tolist()
    assert isinstance(file.training, np.memmap)
    assert file.training.dtype == np.uint16
    assert file.vocabulary_size == 65
    assert file.digest == written.digest == hashlib.sha256(TOKENS.tobytes()).hexdigest()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["data.tokens"]


def test_mapped_tokens_cannot_be_changed(tmp_path: Path) -> None:
    file = write_token_file(tmp_path / "data.tokens", TOKENS, 65)
    with pytest.raises(ValueError, match="read-only"):
        file.training[0] = 1


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_token_file(tmp_path / "data.tokens", TOKENS, 65)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_token_file(tmp_path / "data.tokens", TOKENS[:50], 65)
    monkeypatch.undo()
    assert TokenFile.open(tmp_path / "data.tokens").training.size == 900
    assert len(list(tmp_path.iterdir())) == 1


def test_tokens_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    bad = TOKENS.copy()
    bad[700] = 65
    with pytest.raises(
        TokenOutOfRange, match=r"Token 65 at position 700 of .*data.tokens .* 0 <= token < 65\."
    ):
        write_token_file(tmp_path / "data.tokens", bad, 65)
    assert not (tmp_path / "data.tokens").exists()


def test_range_check_of_negative_and_non_integer_tokens() -> None:
    check_tokens(np.empty((0, 3), np.int32), 5, "a test")
    check_tokens(np.array([[0, 4]]), 5, "a test")
    with pytest.raises(TokenOutOfRange, match="Token -1 at position 3 of a test"):
        check_tokens(np.array([[0, 4], [2, -1]]), 5, "a test")
    with pytest.raises(TokenOutOfRange, match="Tokens of a test have dtype float64, expected integers"):
        check_tokens(np.array([1.0]), 5, "a test")


def test_range_check_looks_past_the_first_piece() -> None:
    tokens = np.ones((1 << 22) + 10, np.uint16)
    tokens[-2] = 9
    with pytest.raises(TokenOutOfRange, match=f"Token 9 at position {tokens.size - 2} "):
        check_tokens(tokens, 9, "a long file")


def damaged(path: Path, offset: int, value: bytes) -> Path:
    write_token_file(path, TOKENS, 65)
    content = bytearray(path.read_bytes())
    content[offset : offset + len(value)] = value
    path.write_bytes(content)
    return path


def test_missing_foreign_newer_and_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "data.tokens"
    with pytest.raises(TokenFileMissing, match=r"no token file at .*data\.tokens"):
        TokenFile.open(path)
    with pytest.raises(TokenFileForeign, match="is not a token file: it begins with b'NUMPY"):
        TokenFile.open(damaged(path, 0, b"NUMPY"))
    with pytest.raises(TokenFileNewer, match="has format version 2; this PCP reads up to 1"):
        TokenFile.open(damaged(path, 8, b"\2"))
    with pytest.raises(TokenFileCorrupt, match=r"The header of .* is damaged"):
        TokenFile.open(damaged(path, 25, b"\1"))
    with pytest.raises(TokenFileCorrupt, match="do not have the digest in its header"):
        TokenFile.open(damaged(path, 500, b"\1\0\1\0"))


def test_truncated_files(tmp_path: Path) -> None:
    path = tmp_path / "data.tokens"
    write_token_file(path, TOKENS, 65)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(
        TokenFileTruncated, match=f"has {len(content) - 1} bytes; its header says {len(content)}"
    ):
        TokenFile.open(path)
    path.write_bytes(content + b"more")
    with pytest.raises(TokenFileTruncated, match=f"has {len(content) + 4} bytes"):
        TokenFile.open(path)
    path.write_bytes(content[:100])
    with pytest.raises(TokenFileTruncated, match="ends inside its header, after 100 bytes"):
        TokenFile.open(path)
    with pytest.raises(TokenFileTruncated, match="holds no tokens"):
        write_token_file(path, TOKENS[:0], 65)
