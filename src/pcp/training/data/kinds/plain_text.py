"""Whether a file is plain text: by how it begins, by its name, by its bytes; and how what is not becomes text."""

import csv
import io
import json
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.training.data.kinds.table import KINDS, SAMPLES

HEAD_BYTES = 1 << 20
"""How much of a file is looked at to recognise its kind."""
ACCEPTED = (
    "--data takes a text file in UTF-8, a folder or URL that `pcp data shard` wrote, 'shakespeare', or, with a loss from a "
    "file (--model FILE), an .npz or .safetensors file of samples"
)
_LINES = 20
"""So many lines of a file are looked at for JSON or for columns."""
_NUMBERS = re.compile(r"[-+0-9.eE]*")


class CorpusNotText(PCPError):
    """What is asked for as text is of another kind, or not in UTF-8."""


class NotAFile(PCPError):
    """A pipe, a socket or a device where a file is expected, which is read more than once."""


def expect_file(path: Path) -> None:
    """Refuse what is there but no file: reading a pipe waits for its writer, and gives nothing the second time.

    Raises:
        NotAFile: it is a pipe, a socket or a device.
        OSError: nothing is there that can be looked at.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
        raise NotAFile(
            f"{path} is {kind}, not a file; data is read more than once. Write it to a file first: "
            f"cat {shlex.quote(str(path))} > data.txt"
        )


def refuse_other_kinds(path: Path) -> None:
    """Refuse a file that is no text by how it begins or by its name.

    Raises:
        NotAFile, CorpusNotText: it is no file, or of a kind that is no text.
        OSError: it cannot be read.
    """
    expect_file(path)
    with path.open("rb") as file:
        _refuse_kinds(path, file.read(HEAD_BYTES))


def text_pieces(path: Path, size: int) -> Iterator[bytes]:
    """The bytes of a file in pieces, unless it is of a kind that is known to be no text.

    Raises:
        NotAFile, CorpusNotText: it is no file, or of a kind that is no text.
        OSError: it cannot be read.
    """
    refuse_other_kinds(path)
    with path.open("rb") as file:
        while piece := file.read(size):
            yield piece


def refuse_zeros(path: Path, data: bytes, place: int = 0) -> None:
    """Refuse bytes that are zero, which UTF-8 allows and no text has.

    Arguments:
        place: of the data in its file.

    Raises:
        CorpusNotText: there is one.
    """
    if (offset := data.find(b"\0")) >= 0:
        raise CorpusNotText(
            f"{path} is not text: byte 0x00 at offset {place + offset}, as in files of numbers and in UTF-16. "
            f"{ACCEPTED}. Convert text of another encoding (iconv -f UTF-16 -t UTF-8); {SAMPLES}"
        )


def _refuse_kinds(path: Path, head: bytes) -> None:
    for kind in KINDS:
        if kind.is_of(head, path):
            file = shlex.quote(str(path))
            raise CorpusNotText(
                f"{path} is {kind.name}, and would be trained on as if its bytes were text. {ACCEPTED}. "
                f"Instead, {kind.remedy.replace('{}', file)}"
            )
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 100 << 20:
        raise CorpusNotText(
            f"{path} is weights or arrays (safetensors), and would be trained on as if its bytes were text. {ACCEPTED}. "
            f"Name it .safetensors if it holds samples: {SAMPLES}"
        )


def refuse_structure(path: Path, head: bytes, whole: bool) -> None:
    """Refuse JSON and tables, whose brackets, names and commas would be learnt with the text in them.

    Arguments:
        head: how the file begins.
        whole: whether that is all of it.

    Raises:
        CorpusNotText: it is one of them, by its name or by what stands in it.
    """
    lines = head.decode("utf-8", errors="replace").lstrip("\ufeff").splitlines(keepends=True)
    complete = [line for line in (lines if whole else lines[:-1]) if line.strip()]
    structure = _json_lines(path, complete, "".join(lines), whole) or _table(path, complete)
    if structure is None:
        return
    name, code = structure
    file, text = shlex.quote(str(path)), shlex.quote(f"{path.stem}.text.txt")
    raise CorpusNotText(
        f"{path} is {name}, and would be trained on with its brackets, names and separators. {ACCEPTED}. Write its text to a "
        f"file first: python -c {shlex.quote(code)} < {file} > {text}. To train on the file as it stands: --tokenizer bytes"
    )


def _json_lines(path: Path, lines: list[str], text: str, whole: bool) -> tuple[str, str] | None:
    """What a file is called that holds JSON, and Python that prints the text in it."""
    parsed = [_parsed(line) for line in lines[:_LINES]]
    by_name = path.suffix.lower() in (".jsonl", ".ndjson")
    if by_name or (len(parsed) > 1 and all(isinstance(each, dict) for each in parsed)):
        field = _text_field(next((each for each in parsed if isinstance(each, dict)), {}))
        return "JSON lines", f"import json, sys; [print(json.loads(line)[{field!r}]) for line in sys.stdin]"
    document = _parsed(text) if whole else None
    # One line longer than the head.
    opens = not whole and not lines and text.lstrip().startswith(('{"', '[{"'))
    if path.suffix.lower() == ".json" or opens or (isinstance(document, dict | list) and document):
        first: Any = document[0] if isinstance(document, list) and document else document
        field = _text_field(first if isinstance(first, dict) else {})
        each = "json.load(sys.stdin)" if isinstance(document, list) or opens else "[json.load(sys.stdin)]"
        return "JSON", f"import json, sys; [print(record[{field!r}]) for record in {each}]"
    return None


def _table(path: Path, lines: list[str]) -> tuple[str, str] | None:
    """What a file is called that holds comma- or tab-separated values, and Python that prints a column of it."""
    named = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    comma = named or ","
    try:
        rows = [*csv.reader(io.StringIO("".join(lines[:_LINES])), delimiter=comma)]
    except csv.Error:
        rows = []
    if named is None and not _looks_like_a_table(rows):
        return None
    field = _text_field(dict(zip(*rows[:2], strict=False))) if len(rows) > 1 else "text"
    tabs = ", delimiter='\\t'" if comma == "\t" else ""
    code = f"import csv, sys; [print(row[{field!r}]) for row in csv.DictReader(sys.stdin{tabs})]"
    return ("tab" if tabs else "comma") + "-separated values", code


def _looks_like_a_table(rows: list[list[str]]) -> bool:
    """Whether rows have names of columns and as many fields each; in prose a space follows a comma."""
    if len(rows) < 3 or len(rows[0]) < 2 or len(set(map(len, rows))) > 1 or len(set(rows[0])) < len(rows[0]):
        return False
    prose = any(field.startswith(" ") for row in rows for field in row[1:])
    return not prose and not any(_NUMBERS.fullmatch(name) for name in rows[0])


def _text_field(record: dict[str, Any]) -> str:
    """The field of a record that most likely holds its text: the longest string; `text` where there is none."""
    strings = {name: value for name, value in record.items() if isinstance(value, str)}
    return "text" if "text" in strings else max(strings, key=lambda name: len(strings[name]), default="text")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
