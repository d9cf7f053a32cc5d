"""The text a model is trained on: a file of the user's, or the default corpus."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pcp.errors import PCPError
from pcp.training.data.kinds.plain_text import HEAD_BYTES, refuse_structure, refuse_zeros, text_pieces
from pcp.training.data.kinds.plain_text import CorpusNotText as CorpusNotText

DEFAULT_CORPUS = "shakespeare"
DEFAULT_DIGEST = "04decea0dd965df5e6cfc4a538b0c62623aaa3bfd848ac7fad6734e59c96624d"
"""SHA-256 of the default corpus, in hex."""
_PACKED = Path(__file__).with_name("shakespeare.txt.xz")


class MissingCorpus(PCPError):
    """The corpus file is not there, is a folder, or may not be read."""


class EmptyCorpus(PCPError):
    """The corpus file holds no bytes."""


@dataclass(frozen=True)
class Corpus:
    """A text, unchanged from where it was read.

    Arguments:
        name: "shakespeare", or the path as the user gave it.
        digest: SHA-256 of the bytes, in hex; it identifies the corpus in checkpoints.
    """

    name: str
    data: bytes = field(repr=False)
    digest: str

    @cached_property
    def text(self) -> str:
        """The characters; raises CorpusNotText where the bytes are not UTF-8, or are JSON or a table."""
        refuse_zeros(Path(self.name), self.data)
        refuse_structure(Path(self.name), self.data[:HEAD_BYTES], len(self.data) <= HEAD_BYTES)
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusNotText(
                f"{self.name} is not UTF-8 text: byte 0x{self.data[error.start]:02x} at offset {error.start}. "
                f"Convert it to UTF-8, or train on bytes instead of characters."
            ) from None


def load_corpus(name_or_path: str | Path = DEFAULT_CORPUS) -> Corpus:
    """Load a corpus.

    Arguments:
        name_or_path: "shakespeare" for the default corpus, or a path to a file, which is read as it is. A file of that
            very name is reached as "./shakespeare".

    Raises:
        MissingCorpus: there is no such file, or it cannot be read.
        EmptyCorpus: the file is empty.
        NotAFile, CorpusNotText: it is no file, or of a kind that is no text in any encoding.
    """
    name = str(name_or_path)
    data = shakespeare() if name_or_path == DEFAULT_CORPUS else _read(Path(name))
    return Corpus(name, data, hashlib.sha256(data).hexdigest())


def shakespeare() -> bytes:
    """The default corpus: Shakespeare's works in modern spelling, 5,057,321 characters of ASCII, 84 different ones.

    These are 42 texts of Project Gutenberg (37 plays, the sonnets and the poems) without its licence headers: the files
    `*_gut.txt` of the package `shakespeare` 0.6 in alphabetic order, with line ends "\\n", no blank lines around a text, two
    between texts and one newline at the end.
    """
    import lzma  # a Python may be built without it

    return lzma.decompress(_PACKED.read_bytes())


def _read(path: Path) -> bytes:
    hint = f"Give --data a text file, a folder that `pcp data shard` wrote, or {DEFAULT_CORPUS!r} for the default corpus."
    try:
        data = b"".join(text_pieces(path, 1 << 24))
    except FileNotFoundError:
        raise MissingCorpus(f"There is no corpus at {path}. {hint}") from None
    except IsADirectoryError:
        raise MissingCorpus(f"The corpus {path} is a folder, not a file. {hint}") from None
    except OSError as error:
        raise MissingCorpus(f"The corpus {path} cannot be read: {error.strerror}. {hint}") from error
    if not data:
        raise EmptyCorpus(f"The corpus {path} is empty. {hint}")
    return data
