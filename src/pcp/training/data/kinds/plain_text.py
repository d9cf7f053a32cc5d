"""Text as it stands: its bytes in pieces, and what shows that bytes are none."""

import codecs
import csv
import io
import json
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pcp.training.data.kinds.kind import CorpusNotText, NotAFile

HEAD_BYTES = 1 << 20
"""How much of a file is looked at to recognise its kind, and is read at once."""
_LINES = 20
"""So many lines of a file are looked at for JSON or for columns."""
_UNTOLD = ("", ".txt", ".text", ".data", ".dat")
"""Ends of names that do not say what is in a file."""
_NUMBERS = re.compile(r"[-+0-9.eE]*")


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


def bytes_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces."""
    with path.open("rb") as file:
        while piece := file.read(HEAD_BYTES):
            yield piece


def decoded(pieces: Iterable[bytes], name: str, accepted: str) -> Iterator[str]:
    """The characters of a text in UTF-8, in pieces.

    Arguments:
        name: of the text, for messages.
        accepted: the kinds of data, for the message about bytes that are no text.

    Raises:
        CorpusNotText: it is in another encoding, or holds a byte that is zero, which UTF-8 allows and no text has.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    place = 0
    for piece in pieces:
        if (offset := piece.find(b"\0")) >= 0:
            raise CorpusNotText(
                f"{name} is not text: byte 0x00 at offset {place + offset}, as in files of numbers and in UTF-16. Convert "
                "text of another encoding (iconv -f UTF-16 -t UTF-8), and name a file of token numbers .bin.\n"
                + accepted
            )
        begun = len(decoder.getstate()[0])
        try:
            yield decoder.decode(piece)
        except UnicodeDecodeError as error:
            raise _not_utf8(name, error, place - begun) from None
        place += len(piece)
    begun = len(decoder.getstate()[0])
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _not_utf8(name, error, place - begun) from None


def _not_utf8(name: str, error: UnicodeDecodeError, place: int) -> CorpusNotText:
    return CorpusNotText(
        f"{name} is not UTF-8 text: byte 0x{error.object[error.start]:02x} at offset {place + error.start}. "
        "Convert it to UTF-8, or train on bytes instead of characters: --tokenizer bytes"
    )


def holds_json_lines(_: Path, head: bytes) -> bool:
    """Whether each of several lines is a JSON object."""
    parsed = [_parsed(line) for line in _whole_lines(head)[:_LINES]]
    return len(parsed) > 1 and all(isinstance(each, dict) for each in parsed)


def holds_json(_: Path, head: bytes) -> bool:
    """Whether a file is one JSON document, or one line of JSON longer than the head."""
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff")
    if len(head) < HEAD_BYTES:
        document = _parsed(text)
        return isinstance(document, dict | list) and bool(document)
    return text.lstrip().startswith(('{"', '[{"')) and not _whole_lines(head)


def holds_a_table(path: Path, head: bytes) -> bool:
    """Whether lines have names of columns and as many fields each; in prose a space follows a comma.

    Programs and marked-up texts, which may have such lines, have names that say so.
    """
    if path.suffix.lower() not in _UNTOLD:
        return False
    try:
        rows = [*csv.reader(io.StringIO("".join(_whole_lines(head)[:_LINES])))]
    except csv.Error:
        return False
    if len(rows) < 3 or len(rows[0]) < 2 or len(set(map(len, rows))) > 1 or len(set(rows[0])) < len(rows[0]):
        return False
    prose = any(field.startswith(" ") for row in rows for field in row[1:])
    return not prose and not any(_NUMBERS.fullmatch(name) for name in rows[0])


def _whole_lines(head: bytes) -> list[str]:
    lines = head.decode("utf-8", errors="replace").lstrip("\ufeff").splitlines(keepends=True)
    return [line for line in (lines if len(head) < HEAD_BYTES else lines[:-1]) if line.strip()]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
