"""What is no text is refused at every door, by content and by name, with what to do; what is text stays as it is."""

import gzip
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pcp.cli import main
from pcp.training.data.array_file import UnreadableFile, read_array_file
from pcp.training.data.corpus import load_text
from pcp.training.data.kinds.kind import NotAFile, UnknownKind
from pcp.training.data.kinds.table import KINDS
from pcp.training.data.shards.place import Place
from pcp.training.data.shards.write import write_shards

PROSE = "First line, and more.\nSecond line, too.\nA third, the last, of them.\n" * 40
RECORDS = [{"id": number, "text": f'It\'s line {number} of a "text"'} for number in range(30)]


def numpy_file() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(1000, dtype=np.int32))
    return file.getvalue()


def archive(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def safetensors() -> bytes:
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)


NUMPY = numpy_file()
BINARY = {
    "npz": (
        archive(lambda file: np.savez(file, x=np.ones(3))),
        "a zip archive",
        "--model loss.pcp --data samples.npz",
    ),
    "gzip": (gzip.compress(PROSE.encode()), "a compressed file", "gunzip"),
    "arrow": (b"ARROW1\0\0" + bytes(20), "an Arrow or Feather file", "read_feather"),
    "safetensors": (safetensors(), "safetensors", "Name it .safetensors"),
    "sqlite": (b"SQLite format 3\0" + bytes(90), "an SQLite database", "sqlite3"),
    "pdf": (b"%PDF-1.4\n1 0 obj << >> endobj", "a PDF", "pdftotext"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(20), "data is images", "a text, "),
    "sound": (b"OggS\0" + bytes(20), "a film, a sound", "np.savez"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(20), "an HDF5 file", "np.savez"),
    "utf-16": (PROSE.encode("utf-16"), "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    "utf-32": (PROSE.encode("utf-32"), "text in UTF-16 or UTF-32", "iconv"),
    "utf-16 without a mark": (PROSE.encode("utf-16-le"), "not text: byte 0x00 at offset 1", "iconv"),
    "numbers": (
        np.arange(1, 3000, dtype=np.uint16).tobytes(),
        "byte 0x00 at offset 1",
        "name a file of token",
    ),
    "program": (b"ML\xefR\x0dStableHLO", "a program, not data", "--model"),
    "zeros": (PROSE.encode() + b"\0", "byte 0x00 at offset", "iconv"),
}
"""How each kind begins whatever it is called: what is said of it, and what to do."""

NAMED = {
    "x.orc": "ORC",
    "x.pt": "a file of PyTorch",
    "x.txt.gz": "a compressed file",
}

TEXTS = {
    "prose": PROSE,
    "lines of Windows": PROSE.replace("\n", "\r\n"),
    "a mark": "\ufeff" + PROSE,
    "a program": "import x\nx(a, b)\ny[1,2]\n" * 20,
    "numbers": "12,34,46\n11,22,33\n1,2,3\n" * 20,
    "one brace": "{\n" + PROSE,
    "a stage direction": "[Enter Hamlet]\nWords, words, words.\n" * 9,
    "names that are magic elsewhere": "The big WAVE came, and PK, GGUF, Obj and ORC. PAR1\n" * 20,
    "one line": "so much for lines",
    "columns of words": "hello\tbonjour\nyes\toui\nno\tnon\n" * 9,
}


def doors(path: Path) -> list[Callable[[], object]]:
    out = Place(str(path.parent / "out"))
    return [
        lambda: load_text(str(path)),
        lambda: write_shards(str(path), out, tokenizer="characters", shard_tokens=100),
        lambda: write_shards(str(path), out, tokenizer="bytes", shard_tokens=100),
    ]


@pytest.mark.parametrize("kind", BINARY)
def test_what_is_no_text_is_refused_by_how_it_begins(kind: str, tmp_path: Path) -> None:
    data, name, remedy = BINARY[kind]
    path = tmp_path / "data"
    path.write_bytes(data)
    # Unknown bytes are what was asked for where the tokens are bytes.
    for door in doors(path)[: 2 if "0x00" in name else 3]:
        with pytest.raises(UnknownKind) as refused:
            door()
        assert name in str(refused.value)
        assert remedy in str(refused.value)
        for accepted in KINDS:
            assert f"{accepted.name} ({accepted.recognised}): {accepted.option}" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_text_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROSE)
    for door in doors(tmp_path / name):
        with pytest.raises(UnknownKind, match=re.escape(f"{name} is {NAMED[name]}")):
            door()


@pytest.mark.parametrize("name", TEXTS)
def test_text_stays_text(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(TEXTS[name].encode())
    assert load_text(str(tmp_path / "x.txt")) == TEXTS[name]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for door in (lambda path: load_text(str(path)), read_array_file):
        with pytest.raises(NotAFile, match=r"pipe is a pipe, not a file; .*cat .*pipe > data\.txt"):
            door(tmp_path / "pipe")
    with pytest.raises(NotAFile, match="is a device"):
        load_text("/dev/null")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (NUMPY, "holds one array; expected several by name"),
        (PROSE.encode(), "expected what np.savez writes"),
        (b"", "expected what np.savez writes"),
        (BINARY["npz"][0][:-40], "expected what np.savez writes"),
        (
            archive(lambda file: zipfile.ZipFile(file, "w").writestr("a.txt", "no array")),
            "expected what np.savez",
        ),
    ],
)
def test_what_is_called_npz_and_is_none(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(UnreadableFile, match=re.escape(message)):
        read_array_file(tmp_path / "x.npz")


def test_every_command_refuses_it_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in (("x.pdf", b"%PDF-1.4"), ("x.gz", b"\x1f\x8b 1"), ("x.db", b"SQLite format 3\0")):
        Path(name).write_bytes(data)
        Path("run.toml").write_text(f'data = "{name}"\n')
        for arguments in (
            ["train", "--data", name],
            ["data", "shard", name, "--out", "o"],
            ["shepherd", "run.toml"],
        ):
            assert main(arguments) == 2
            said = capsys.readouterr().err
            assert f"pcp: {name} is " in said
            assert "Traceback" not in said
    assert not list(tmp_path.glob("runs/*"))
