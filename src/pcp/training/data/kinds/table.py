"""The kinds of data that are trained on, a row each; the first that a file is of counts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcp.training.data.kinds.kind import Gives, Kind, named
from pcp.training.data.kinds.plain_text import bytes_of, holds_a_table, holds_json, holds_json_lines
from pcp.training.data.kinds.records import json_document, json_lines, parquet, table
from pcp.training.data.kinds.token_arrays import bin_tokens, holds_a_vector, npy_tokens, npz_tokens


def _by_loss(_: Path) -> Iterator[Any]:
    yield from ()


IMAGES = Kind(
    "images",
    Gives.samples,
    "names in .png, .jpg, .jpeg, .gif, .bmp or .webp, or first bytes, in a folder for each class; needs --model FILE, or "
    "a model of images as dit-nano, and the extra `images`",
    "--model loss.pcp --data images",
    lambda path, head: (
        named(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp")(path, head)
        or head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a"))
    ),
    _by_loss,
)
KINDS = (
    IMAGES,
    Kind(
        "token numbers in an .npz",
        Gives.tokens,
        "a name in .npz, with one vector of integers; for models by name",
        "--data tokens.npz",
        holds_a_vector,
        npz_tokens,
    ),
    Kind(
        "samples in arrays",
        Gives.samples,
        "a name in .npz or .safetensors, written by np.savez or safetensors; needs --model FILE",
        "--model loss.pcp --data samples.npz",
        named(".npz", ".safetensors"),
        _by_loss,
    ),
    Kind(
        "token numbers",
        Gives.tokens,
        "a name in .bin: uint16 or uint32 one after another, as nanoGPT writes them, or with the header of llm.c",
        "--data train.bin",
        named(".bin"),
        bin_tokens,
    ),
    Kind(
        "token numbers of NumPy",
        Gives.tokens,
        "a name in .npy: a vector of integers",
        "--data tokens.npy",
        lambda path, head: head.startswith(b"\x93NUMPY") or path.suffix.lower() == ".npy",
        npy_tokens,
    ),
    Kind(
        "Parquet",
        Gives.records,
        "a name in .parquet, or a file that begins with PAR1; needs the extra `parquet`",
        "--data notes.parquet --field text",
        lambda path, head: named(".parquet")(path, head) or head.startswith(b"PAR1"),
        parquet,
    ),
    Kind(
        "JSON lines",
        Gives.records,
        "a name in .jsonl or .ndjson, or lines that are JSON objects",
        "--data notes.jsonl --field text",
        lambda path, head: named(".jsonl", ".ndjson")(path, head) or holds_json_lines(path, head),
        json_lines,
    ),
    Kind(
        "JSON",
        Gives.records,
        "a name in .json, or one JSON document: a list of objects",
        "--data notes.json --field text",
        lambda path, head: named(".json")(path, head) or holds_json(path, head),
        json_document,
    ),
    Kind(
        "a table",
        Gives.records,
        "a name in .csv or .tsv, or, in .txt or without an ending, lines with as many commas each below names of columns",
        "--data notes.csv --field text",
        lambda path, head: named(".csv", ".tsv")(path, head) or holds_a_table(path, head),
        table,
    ),
    Kind(
        "text",
        Gives.text,
        "anything else in UTF-8 without a zero byte",
        "--data my.txt",
        lambda _path, _head: True,
        bytes_of,
    ),
)
TEXT = KINDS[-1]


def accepted() -> str:
    """All kinds, and by what each is recognised, for messages."""
    rows = [f"{kind.name} ({kind.recognised}): {kind.option}" for kind in KINDS]
    rows += [
        "conversations (records with `messages` of roles and contents): --data chats.jsonl",
        "several files of one kind: --data a.txt b.txt, a folder, or a pattern such as 'texts/*.txt'",
        "shards (a folder or URL that `pcp data shard` wrote): --data corpus-shards",
        "'shakespeare': the corpus that PCP brings",
    ]
    return "--data takes\n  " + "\n  ".join(rows)
