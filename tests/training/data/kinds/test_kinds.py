"""What each kind of data gives: the same documents from every kind of record, the same tokens from every file of numbers."""

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.corpus import load_text
from pcp.training.data.encoding import encoded, tokenizer_of
from pcp.training.data.kinds.kind import NotAFile
from pcp.training.data.kinds.records import FieldMissing, RowUnreadable
from pcp.training.data.kinds.source import EmptyCorpus, MissingCorpus, MixedKinds, find_source
from pcp.training.data.kinds.table import KINDS
from pcp.training.data.kinds.token_arrays import NotTokens
from pcp.training.data.run_data import TextData
from pcp.training.data.saved_tokenizer import tokenizer_from_json
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.extras import MissingExtra
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.data_of_run import tokens_of
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder

random = np.random.default_rng()
DOCUMENTS = ["".join(random.choice([*'aé"\\,;\t ', "\n"], 50)) + "x" for _ in range(30)]
RECORDS = [{"id": number, "note": "", "text": text} for number, text in enumerate(DOCUMENTS)]


def write_table(path: Path, delimiter: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.DictWriter(file, ["id", "note", "text"], delimiter=delimiter)
        rows.writeheader()
        rows.writerows(RECORDS)


def write_texts(path: Path) -> None:
    path.mkdir()
    for number, text in enumerate(DOCUMENTS):
        (path / f"{number:02}.md").write_bytes(text.encode())
    (path / ".hidden").write_bytes(b"\0")


def lines(path: Path, end: str = "\n") -> None:
    path.write_bytes("".join(json.dumps(each) + end for each in RECORDS).encode())


def write_parquet(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    package = pytest.importorskip("pyarrow.parquet")
    package.write_table(arrow.Table.from_pylist(RECORDS), path, row_group_size=7)


WRITERS: dict[str, Callable[[Path], object]] = {
    "x.jsonl": lines,
    "x.ndjson": lambda path: lines(path, "\r\n\r\n"),
    "recognised.by.its.lines": lines,
    "marked.jsonl": lambda path: (lines(path), path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())),
    "x.json": lambda path: path.write_text(json.dumps(RECORDS, indent=1)),
    "recognised-by-its-document": lambda path: path.write_text(json.dumps(RECORDS)),
    "x.csv": lambda path: write_table(path, ","),
    "x.TSV": lambda path: write_table(path, "\t"),
    "x.parquet": write_parquet,
    "recognised-by-its-first-bytes": write_parquet,
    "folder": write_texts,
}


def run(tmp_path: Path, data: object, **settings: Any) -> RunFolder:
    return RunFolder.create(tmp_path / "run", TrainingConfig().replaced(data=str(data), **settings))


def whole(tmp_path: Path, data: object, **settings: Any) -> np.ndarray:
    folder = run(tmp_path, data, **settings)
    tokens = tokens_of(folder, folder.config())
    return np.concatenate([tokens.training, tokens.validation])


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_gives_the_same_documents(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    assert load_text(str(tmp_path / name), "text") == "\n".join(DOCUMENTS)
    folder = run(tmp_path, tmp_path / name)  # `text` is the field where none is named
    tokens = tokens_of(folder, folder.config())
    found = folder.tokenizer().decode([*tokens.training, *tokens.validation])
    assert found == "\n".join(DOCUMENTS)
    assert tokens.training.size == int(len(found) * 0.9)


def test_a_field_by_name_the_only_text_and_the_file_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"body": "one", "n": 1}\n{"body": "two", "n": 2}\n')
    assert load_text(str(path)) == load_text(str(path), "body") == "one\ntwo"
    assert load_text(str(path), "*") == path.read_text()
    path.write_text('{"a": "x", "longer": "xyz", "n": 1}\n')
    with pytest.raises(
        FieldMissing, match=r"x\.jsonl, line 1, has the fields a, longer, n; .*--field longer"
    ):
        load_text(str(path))
    with pytest.raises(FieldMissing, match="line 1, has no field 'text'; it has a, longer, n"):
        load_text(str(path), "text")


WRONG_ROWS = {
    "json": (
        "x.jsonl",
        '{"text": "a"}\n\n{"text": b}\n',
        "line 3, is not JSON: Expecting value at column 10; it begins",
    ),
    "list": ("x.jsonl", '{"text": "a"}\n[1, 2]\n', "line 2, is [1, 2]; expected an object"),
    "number": ("x.jsonl", '{"text": "a"}\n{"text": 7}\n', "line 2, has 7 in its field 'text'; expected text"),
    "null": ("x.json", '[{"text": "a"}, {"text": null}]', "element 2, has null in its field"),
    "element": ("x.json", '["a"]', 'element 1, is "a"; expected an object'),
    "document": ("x.json", '{"text": ', "x.json is not JSON: Expecting value"),
    "fields": ("x.csv", "id,text\n1,a\n2,b,c\n", "line 3, has 3 fields; its first line names 2: id, text"),
    "few": ("x.csv", "id,text\n1,a\n2\n", "line 3, has 1 fields; its first line names 2: id, text"),
    "quote": ("x.csv", 'id,text\n1,"a"b\n', "cannot be read: "),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_a_wrong_row_is_named_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    name, content, message = WRONG_ROWS[case]
    (tmp_path / name).write_text(content)
    folder = run(tmp_path, tmp_path / name, field="text")
    with pytest.raises(RowUnreadable, match=re.escape(message)):
        tokens_of(folder, folder.config())
    assert [each.name for each in folder.path.iterdir()] == ["config.json"]


def test_parquet_that_is_damaged_or_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow.parquet", None)
        (tmp_path / "x.parquet").write_bytes(b"PAR1")
        with pytest.raises(MissingExtra, match=r"Reading .*x\.parquet needs .*protocol\[parquet\]"):
            load_text(str(tmp_path / "x.parquet"))
    write_parquet(tmp_path / "x.parquet")
    whole_file = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole_file[:-20])
    with pytest.raises(RowUnreadable, match=r"x\.parquet, after row 0, cannot be read as Parquet"):
        load_text(str(tmp_path / "x.parquet"))


def test_files_patterns_and_those_whose_name_says_validation(tmp_path: Path) -> None:
    for name, text in (("a-train.txt", "abc"), ("b.txt", "de"), ("val.txt", "fg")):
        (tmp_path / name).write_text(text)
    folder = run(tmp_path, f"{tmp_path}/*.txt")
    tokens = tokens_of(folder, folder.config())
    decode = folder.tokenizer().decode
    assert (decode(tokens.training), decode(tokens.validation)) == ("abc\nde", "fg")
    both = f"{tmp_path / 'b.txt'},{tmp_path / 'a-train.txt'}"
    assert load_text(both) == "de\nabc"
    (tmp_path / "with, comma.txt").write_text("kept")
    assert load_text(str(tmp_path / "with, comma.txt")) == "kept"
    (tmp_path / "table.py").write_text("a,b\n1,2\n3,4\n")
    assert load_text(str(tmp_path / "table.py")) == "a,b\n1,2\n3,4\n"  # a name that tells
    (tmp_path / "table.txt").write_text("a,text\n1,2\n3,4\n")
    assert load_text(str(tmp_path / "table.txt")) == "2\n4"
    (tmp_path / "table.txt").unlink()
    np.save(tmp_path / "c.npy", np.arange(9))
    with pytest.raises(
        MixedKinds, match=r"a-train\.txt is text, .*c\.npy is token numbers of NumPy\. Give those"
    ):
        find_source(f"{tmp_path}/?*.*")
    with pytest.raises(MissingCorpus, match=r"no corpus at .*none\*\.txt"):
        find_source(f"{tmp_path}/none*.txt")


def llm_c(tokens: np.ndarray, path: Path, magic: int, version: int) -> None:
    header = np.zeros(256, np.uint32)
    header[:3] = magic, version, tokens.size
    path.write_bytes(header.tobytes() + tokens.tobytes())


TOKENS = random.integers(0, 50_000, 3000)
PADDED = np.where(random.random(3000) < 0.7, 0, TOKENS)
WIDE = random.zipf(1.2, 3000).clip(max=128_000)
DNA = random.integers(0, 5, 3000)


def saved(path: Path, array: np.ndarray) -> None:
    np.save(path, array)


NUMBERS: dict[str, tuple[str, np.ndarray, Callable[[Path], object]]] = {
    "uint16": ("x.bin", TOKENS, lambda path: TOKENS.astype(np.uint16).tofile(path)),
    "few of uint16": ("x.bin", DNA, lambda path: DNA.astype(np.uint16).tofile(path)),
    "mostly zeros": ("x.bin", PADDED, lambda path: PADDED.astype(np.uint16).tofile(path)),
    "uint32": ("x.bin", WIDE, lambda path: WIDE.astype(np.uint32).tofile(path)),
    "llm.c": ("x.bin", TOKENS, lambda path: llm_c(TOKENS.astype(np.uint16), path, 20240520, 1)),
    "llm.c wide": ("x.bin", WIDE, lambda path: llm_c(WIDE.astype(np.uint32), path, 20240801, 7)),
    "npy": ("x.npy", WIDE, lambda path: saved(path, WIDE)),
    "npz": ("x.npz", WIDE, lambda path: np.savez_compressed(path, WIDE)),
    "rows": ("x.npy", TOKENS, lambda path: saved(path, TOKENS.astype(np.int32).reshape(30, 100))),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_token_numbers_are_those_of_the_file(case: str, tmp_path: Path) -> None:
    name, expected, write = NUMBERS[case]
    write(tmp_path / name)
    np.testing.assert_array_equal(whole(tmp_path, tmp_path / name), expected)
    tokenizer = RunFolder.open(tmp_path / "run").tokenizer()
    assert tokenizer.vocabulary_size == expected.max() + 1
    text = tokenizer.decode(expected[:5])
    assert text.split() == [str(token) for token in expected[:5]]
    assert tokenizer_from_json(tokenizer.to_json()).encode(text).tolist() == expected[:5].tolist()


def test_the_files_of_nanogpt(tmp_path: Path) -> None:
    data = tmp_path / "shakespeare"
    data.mkdir()
    TOKENS[:2000].astype(np.uint16).tofile(data / "train.bin")
    TOKENS[2000:].astype(np.uint16).tofile(data / "val.bin")
    for given in (data, f"{data / 'train.bin'},{data / 'val.bin'}"):
        folder = run(tmp_path, given, seed=3)
        tokens = tokens_of(folder, folder.config())
        np.testing.assert_array_equal(tokens.training, TOKENS[:2000])
        np.testing.assert_array_equal(tokens.validation, TOKENS[2000:])
        inputs, targets = TextData(tokens, 8).batches(4, 3).batch(17)
        np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])
        folder.discard()


def test_wrong_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"123")
    for name, write, message in (
        ("x.bin", lambda: path.write_bytes(b"123"), "has 3 bytes; expected token numbers of 2 or 4 bytes"),
        (
            "x.bin",
            lambda: llm_c(TOKENS[:99].astype(np.uint8), path, 20240520, 1),
            "its header says 99 tokens of 2 bytes after 1024",
        ),
        ("f.npy", lambda: saved(tmp_path / "f.npy", TOKENS / 2), "holds float64[3000]; token numbers are"),
        ("t.npy", lambda: (tmp_path / "t.npy").write_bytes(b"\x93NUMPY"), "cannot be read as np.save"),
    ):
        write()
        with pytest.raises(NotTokens, match=re.escape(message)):
            whole(tmp_path, tmp_path / name)
        RunFolder.open(tmp_path / "run").discard()
    saved(tmp_path / "n.npy", np.array([3, 1, -2, 5]))
    saved(tmp_path / "m.npy", np.arange(9))
    both = f"{tmp_path / 'm.npy'},{tmp_path / 'n.npy'}"
    with pytest.raises(TokenOutOfRange, match=r"Token -2 at position 11 of"):
        whole(tmp_path, both)
    RunFolder.open(tmp_path / "run").discard()
    with pytest.raises(TokenOutOfRange, match=r"Token -2 at position 2 of .*n\.npy is outside"):
        whole(tmp_path, tmp_path / "n.npy")
    RunFolder.open(tmp_path / "run").discard()
    saved(tmp_path / "n.npy", np.zeros(0, np.int32))
    with pytest.raises(EmptyCorpus, match="has no token numbers"):
        whole(tmp_path, tmp_path / "n.npy")


def test_a_vector_in_an_npz_is_tokens_for_a_model_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", TOKENS % 100)
    folder = run(tmp_path, tmp_path / "x.npz")
    recipe = prepare(folder)
    assert recipe.data.vocabulary == 100
    (tmp_path / "x.npz").unlink()
    np.testing.assert_array_equal(prepare(folder).batches.batch(3), recipe.batches.batch(3))


def test_samples_for_a_model_that_takes_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.ones((4, 3)))
    folder = run(tmp_path, tmp_path / "s.npz")
    with pytest.raises(
        InvalidTrainingConfig, match="samples in arrays or images, but gpt2-nano takes text, messages"
    ):
        prepare(folder)


def test_bytes_of_records_and_of_a_file_in_no_encoding(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 noir")
    lines(tmp_path / "x.jsonl")
    for name, expected in (("latin.txt", b"caf\xe9 noir"), ("x.jsonl", "\n".join(DOCUMENTS).encode())):
        source = find_source(str(tmp_path / name))
        tokenizer = tokenizer_of(source, "bytes", 256)
        tokens = np.concatenate([*encoded(source, source.parts, tokenizer)])
        assert bytes(tokens.tolist()) == expected


def test_a_device_is_refused() -> None:
    with pytest.raises(NotAFile, match="is a device"):
        find_source("/dev/null")


def test_the_page_has_every_kind() -> None:
    page = (Path(__file__).parents[4] / "docs/concepts/data.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"| {kind.name} | {kind.recognised} | `pcp train {kind.option}` |" in page


@pytest.mark.parametrize("end", ["", "<|endoftext|>"])
def test_documents_of_byte_pairs_end_with_the_token_for_that(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    for name, size in (("_PIECE", 300), ("_WINDOW", 60), ("_CHECKED", 30)):
        monkeypatch.setattr(f"pcp.training.data.encoding.{name}", size)
    documents = [" ".join(random.choice(["to", "be", "or", "not"], count)) for count in (3, 400, 1, 50, 2, 9)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    inner = BytePairTokenizer.train(documents, 300)
    definition = tokenizers.Tokenizer.from_str(json.loads(inner.to_json())["definition"])
    if end:
        definition.add_special_tokens([end])
    definition.save(str(tmp_path / "tokenizer.json"))
    tokens = whole(tmp_path, tmp_path / "x.jsonl", tokenizer=str(tmp_path))
    between = definition.encode(end or "\n").ids
    assert len(between) == 1
    expected: list[int] = []
    for number, document in enumerate(documents):
        expected += (between if number else []) + definition.encode(document).ids
    assert tokens.tolist() == expected
