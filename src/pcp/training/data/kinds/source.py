"""What a run's data are: the files that are meant, their kind, and what each gives."""

import glob
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pcp.errors import PCPError
from pcp.training.data.kinds.kind import Gives, Kind, UnknownKind
from pcp.training.data.kinds.plain_text import HEAD_BYTES, decoded, expect_file
from pcp.training.data.kinds.records import Record, text_of
from pcp.training.data.kinds.refused import REFUSED, SAMPLES
from pcp.training.data.kinds.shakespeare import PACKED, SHAKESPEARE
from pcp.training.data.kinds.table import KINDS, TEXT, accepted

DEFAULT_CORPUS = "shakespeare"
AS_IT_STANDS = "*"
"""The field of records whose brackets, names and separators are trained on, too."""
_VALIDATION = re.compile(r"(^|[-_.\d])(val|valid|validation)([-_.\d]|$)", re.IGNORECASE)


class MissingCorpus(PCPError):
    """The data is not there, or may not be read."""


class EmptyCorpus(PCPError):
    """The data holds nothing."""


class MixedKinds(PCPError):
    """Files of several kinds are given as one corpus."""


@dataclass(frozen=True)
class Part:
    """A file of the data, and its kind."""

    path: Path
    kind: Kind


@dataclass(frozen=True)
class Source:
    """The files of a run's data, all of which give the same.

    Arguments:
        data: as the user gave it.
        parts: those that are trained on, in order.
        validation: those that are not, where names say so; otherwise the end of the others is kept for that.
        field: of records, as the user gave it.
    """

    data: str
    parts: tuple[Part, ...]
    validation: tuple[Part, ...] = ()
    field: str = ""

    @property
    def gives(self) -> Gives:
        """What is made of the files."""
        return self.parts[0].kind.gives

    def texts(self, parts: tuple[Part, ...]) -> Iterator[Iterator[str]]:
        """The documents of some files, each in pieces: a file of text is one, and so is a record.

        Raises:
            CorpusNotText, RowUnreadable, FieldMissing: as named.
            OSError: a file cannot be read.
        """
        for part in parts:
            if part.kind.gives is Gives.text:
                yield decoded(part.kind.read(part.path), str(part.path), accepted())
                continue
            for place, record in part.kind.read(part.path):
                yield iter((text_of(record, self.field, place),))

    def records(self, parts: tuple[Part, ...]) -> Iterator[tuple[str, Record]]:
        """The records of some files and where each stands."""
        for part in parts:
            yield from part.kind.read(part.path)


def find_source(data: str, field: str = "") -> Source:
    """Find out what data are.

    Arguments:
        data: a file, a folder, a pattern of names, several of these with commas between them, or "shakespeare" for the
            corpus that PCP brings; a file of that very name is reached as "./shakespeare".
        field: of records.

    Raises:
        MissingCorpus: nothing is there, or it cannot be looked at.
        EmptyCorpus: a file has no bytes.
        NotAFile, UnknownKind, MixedKinds: it is nothing that is trained on.
    """
    if data == DEFAULT_CORPUS:
        return Source(data, (Part(PACKED, SHAKESPEARE),))
    files = files_of(data)
    parts = tuple(Part(path, kind_of(path, field)) for path in files)
    first = parts[0]
    for part in parts:
        if part.kind.gives is not first.kind.gives:
            raise MixedKinds(
                f"{data} has files of several kinds: {first.path} is {first.kind.name}, {part.path} is {part.kind.name}. Give "
                f"those of one kind, as in --data {shlex.quote(str(first.path.parent / ('*' + first.path.suffix)))}, or all as "
                f"they stand: --field '{AS_IT_STANDS}'"
            )
    held_out = tuple(part for part in parts if _is_validation(part.path, Path(data)))
    training = tuple(part for part in parts if part not in held_out)
    return Source(data, training, held_out, field) if training else Source(data, parts, (), field)


def files_of(data: str) -> list[Path]:
    """The files that are meant, at least one, those of a folder and of a pattern in the order of their names.

    Raises:
        MissingCorpus: there are none.
    """
    path = Path(data)
    hint = "Give --data a file, a folder, a pattern such as 'texts/*.txt', or 'shakespeare' for the corpus that PCP brings"
    try:
        if path.is_dir():
            files = sorted(each for each in path.rglob("*") if each.is_file() and not _hidden(each, path))
            if not files:
                raise MissingCorpus(f"The folder {path} has no files. {hint}")
            return files
        if not path.exists() and not path.is_symlink():
            if glob.has_magic(data):
                files = sorted(map(Path, glob.glob(data, recursive=True)))
                if files:
                    return [file for each in files for file in files_of(str(each))]
            elif "," in data:
                return [file for each in data.split(",") for file in files_of(each.strip())]
            raise MissingCorpus(f"There is no corpus at {path}. {hint}")
        path.stat()
    except OSError as error:
        raise MissingCorpus(f"The corpus {path} cannot be read: {error.strerror}. {hint}") from None
    return [path]


def kind_of(path: Path, field: str = "") -> Kind:
    """The kind of a file.

    Raises:
        MissingCorpus, EmptyCorpus: it cannot be read, or has no bytes.
        NotAFile, UnknownKind: it is nothing that is trained on.
    """
    try:
        expect_file(path)
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise MissingCorpus(f"The corpus {path} cannot be read: {error.strerror}.") from None
    if not head:
        raise EmptyCorpus(f"The corpus {path} is empty. Give a file with something in it")
    kind = next(kind for kind in KINDS if kind.is_of(path, head))
    if kind is TEXT:
        _refuse(path, head)
    return TEXT if kind.gives is Gives.records and field == AS_IT_STANDS else kind


def _is_validation(path: Path, root: Path) -> bool:
    """Whether the name of a file says so, or of a folder below that which was given."""
    inner = path.relative_to(root).parent.parts if path.is_relative_to(root) else ()
    return any(_VALIDATION.search(name) for name in (path.stem, *inner))


def _refuse(path: Path, head: bytes) -> None:
    for kind in REFUSED:
        if kind.is_of(head, path):
            remedy = kind.remedy.replace("{}", shlex.quote(str(path)))
            raise UnknownKind(
                f"{path} is {kind.name}, and would be trained on as if its bytes were text. Instead, {remedy}.\n{accepted()}"
            )
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 100 << 20:
        raise UnknownKind(
            f"{path} is weights or arrays (safetensors), and would be trained on as if its bytes were text. Name it "
            f".safetensors if it holds samples: {SAMPLES}.\n{accepted()}"
        )


def _hidden(path: Path, root: Path) -> bool:
    return any(name.startswith((".", "__")) for name in path.relative_to(root).parts)
