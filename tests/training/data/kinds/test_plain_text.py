"""What is no text is refused at every door, by content and by name, with what to do; what is text stays as it is."""

import gzip
import io
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pcp.cli import main
from pcp.training.data.array_file import UnreadableFile, read_array_file
from pcp.training.data.corpus import load_corpus
from pcp.training.data.kinds.plain_text import CorpusNotText, NotAFile, refuse_structure
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
    "npy": (NUMPY, "an array of NumPy", "np.savez"),
    "npz": (
        archive(lambda file: np.savez(file, x=np.ones(3))),
        "a zip archive",
        "--model loss.pcp --data samples.npz",
    ),
    "gzip": (gzip.compress(PROSE.encode()), "a compressed file", "gunzip"),
    "parquet": (b"PAR1\x15\x04\x15 all of it without a zero byte PAR1", "Parquet", "read_parquet"),
    "arrow": (b"ARROW1\0\0" + bytes(20), "an Arrow or Feather file", "read_feather"),
    "safetensors": (safetensors(), "safetensors", "Name it .safetensors"),
    "sqlite": (b"SQLite format 3\0" + bytes(90), "an SQLite database", "sqlite3"),
    "pdf": (b"%PDF-1.4\n1 0 obj << >> endobj", "a PDF", "pdftotext"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(20), "an image", "np.savez"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(20), "an HDF5 file", "np.savez"),
    "utf-16": (PROSE.encode("utf-16"), "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    "utf-32": (PROSE.encode("utf-32"), "text in UTF-16 or UTF-32", "iconv"),
    "utf-16 without a mark": (PROSE.encode("utf-16-le"), "not text: byte 0x00 at offset 1", "iconv"),
    "nanoGPT": (np.arange(1, 3000, dtype=np.uint16).tobytes(), "byte 0x00 at offset 1", "np.savez"),
    "program": (b"ML\xefR\x0dStableHLO", "a program, not data", "--model"),
    "zeros": (PROSE.encode() + b"\0", "byte 0x00 at offset", "iconv"),
}
"""How each kind begins whatever it is called: what is said of it, and what to do."""

NAMED = {
    "x.npy": "an array of NumPy",
    "x.NPZ": "a file of arrays",
    "x.bin": "a file of numbers (.bin), such as the tokens that nanoGPT prepares",
    "x.parquet": "Parquet",
    "x.pt": "a file of PyTorch",
    "x.txt.gz": "a compressed file",
}

lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
comma = "id,text\n" + "".join(f"{record['id']},line {record['id']} of a text\n" for record in RECORDS)
STRUCTURED = {
    "x.jsonl": (lines, "JSON lines", "print(json.loads(line)"),
    "x.ndjson": (lines, "JSON lines", "'text'"),
    "lines.txt": (lines, "JSON lines", "'text'"),
    "no-suffix": ("\ufeff" + lines.replace("\n", "\r\n\r\n"), "JSON lines", "'text'"),
    "x.json": (json.dumps(RECORDS, indent=1), "JSON", "json.load(sys.stdin)"),
    "document": (json.dumps(RECORDS), "JSON", "json.load(sys.stdin)"),
    "x.csv": (comma, "comma-separated values", "csv.DictReader(sys.stdin)"),
    "table.txt": (comma, "comma-separated values", "csv.DictReader(sys.stdin)"),
    "x.TSV": (comma.replace(",", "\t"), "tab-separated values", r"delimiter="),
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


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("tokenizer", ["characters", "bytes"])
def test_what_is_no_text_is_refused_by_how_it_begins(kind: str, tokenizer: str, tmp_path: Path) -> None:
    data, name, remedy = BINARY[kind]
    if tokenizer == "bytes" and "0x00" in name:
        return  # unknown bytes are what was asked for
    path = tmp_path / "data"
    path.write_bytes(data)
    for door in (
        lambda: load_corpus(path).text,
        lambda: write_shards(path, Place(str(tmp_path / "out")), tokenizer=tokenizer, shard_tokens=100),
    ):
        with pytest.raises(CorpusNotText) as refused:
            door()
        assert name in str(refused.value)
        assert remedy in str(refused.value)
        assert "--data takes a text file in UTF-8" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMED)
def test_what_is_no_text_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROSE)
    with pytest.raises(CorpusNotText, match=re.escape(f"{name} is {NAMED[name]}")):
        load_corpus(tmp_path / name)


@pytest.mark.parametrize("name", STRUCTURED)
def test_json_and_tables_are_refused_with_what_makes_text_of_them(name: str, tmp_path: Path) -> None:
    content, kind, code = STRUCTURED[name]
    path = tmp_path / name
    path.write_bytes(content.encode())
    with pytest.raises(CorpusNotText, match=re.escape(f"{name} is {kind}, and would be")) as refused:
        _ = load_corpus(path).text
    assert code in str(refused.value)
    assert "--tokenizer bytes" in str(refused.value)
    assert load_corpus(path).data == content.encode()  # which bytes are made of, where those are asked for
    with pytest.raises(CorpusNotText, match=kind):
        write_shards(path, Place(str(tmp_path / "out")), tokenizer="characters", shard_tokens=100)
    write_shards(path, Place(str(tmp_path / "out")), tokenizer="bytes", shard_tokens=100000)


@pytest.mark.parametrize("name", ["it's.jsonl", "x.csv", "x.TSV", "x.json"])
def test_the_command_that_is_advised_makes_text(name: str, tmp_path: Path) -> None:
    like = "x.jsonl" if name == "it's.jsonl" else name
    path = tmp_path / name
    path.write_text(STRUCTURED[like][0])
    with pytest.raises(CorpusNotText) as refused:
        _ = load_corpus(path).text
    [command] = re.findall(r"first: (python -c .*) > .*\. To train", str(refused.value))
    command = command.replace("python", sys.executable, 1)
    made = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert len(made.splitlines()) == 30
    assert "{" not in made
    assert "line 29 of a" in made


def test_one_line_of_json_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(CorpusNotText, match="is JSON, and"):
        refuse_structure(tmp_path / "x", b'{"text": "' + b"a" * 1000, whole=False)


@pytest.mark.parametrize("name", TEXTS)
def test_text_stays_text(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(TEXTS[name].encode())
    assert load_corpus(tmp_path / "x.txt").text == TEXTS[name]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for door in (load_corpus, read_array_file):
        with pytest.raises(NotAFile, match=r"pipe is a pipe, not a file; .*cat .*pipe > data\.txt"):
            door(tmp_path / "pipe")
    with pytest.raises(NotAFile, match="is a device"):
        load_corpus("/dev/null")


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
    for name, data in (("x.npy", NUMPY), ("x.jsonl", lines.encode()), ("x.csv", comma.encode())):
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
