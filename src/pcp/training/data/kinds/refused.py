"""Kinds of files that nobody trains on: how they begin, how they are called, and how data is made of them."""

from dataclasses import dataclass
from pathlib import Path

SAMPLES = (
    "to train a loss from a file on arrays, save one array for each argument of its batch, samples along the first axis: "
    "np.savez('samples.npz', x, y), then --model loss.pcp --data samples.npz"
)
_COLUMN = "write its column of text to a file, for example that of pandas.read_{}(FILE)['text']"


@dataclass(frozen=True, slots=True)
class Refused:
    """A kind of file that is no data.

    Arguments:
        name: as in "FILE is ...".
        remedy: what to do with it; `{}` stands for the file.
        begins: how its files begin, with the offset of that.
        suffixes: how the names of its files end.
    """

    name: str
    remedy: str
    begins: tuple[tuple[int, bytes], ...] = ()
    suffixes: tuple[str, ...] = ()

    def is_of(self, head: bytes, path: Path) -> bool:
        """Whether a file is of this kind, by its first bytes and its name."""
        return path.suffix.lower() in self.suffixes or any(
            head.startswith(magic, offset) for offset, magic in self.begins
        )


def _at(*magics: bytes, offset: int = 0) -> tuple[tuple[int, bytes], ...]:
    return tuple((offset, magic) for magic in magics)


REFUSED = (
    Refused(
        "a zip archive, as .npz, .pt and .docx are",
        f"unpack it, or, if it is an .npz of samples, {SAMPLES}",
        _at(b"PK\x03\x04", b"PK\x05\x06"),
        (".zip",),
    ),
    Refused(
        "a compressed file",
        "unpack it first, with gunzip, bunzip2, unxz, unzstd or lz4 -d",
        _at(b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c")
        + _at(b"1AY&SY", offset=4),
        (".gz", ".bz2", ".xz", ".zst", ".lz4", ".7z"),
    ),
    Refused(
        "a tar archive", "unpack it first: tar -xf {}", _at(b"ustar\0", b"ustar  \0", offset=257), (".tar",)
    ),
    Refused(
        "an Arrow or Feather file", _COLUMN.format("feather"), _at(b"ARROW1", b"FEA1"), (".arrow", ".feather")
    ),
    Refused("ORC", _COLUMN.format("orc"), suffixes=(".orc",)),
    Refused("Avro", "write its texts to a file first", _at(b"Obj\x01"), (".avro",)),
    Refused(
        "a file of PyTorch or pickled objects", SAMPLES, suffixes=(".pt", ".pth", ".pkl", ".pickle", ".ckpt")
    ),
    Refused("an HDF5 file", SAMPLES, _at(b"\x89HDF\r\n\x1a\n"), (".h5", ".hdf5")),
    Refused(
        "a GGUF file of weights",
        "give the text that the model shall learn",
        _at(b"GGUF\x03\0", b"GGUF\x02\0"),
        (".gguf",),
    ),
    Refused("a token file of a run", "give the text that it was made from", _at(b"PCPTOKEN")),
    Refused(
        "a program, not data",
        "give it as --model, and the text or the samples as --data",
        _at(b"ML\xefR", b"PCPprog\n"),
        (".mlir", ".mlirbc", ".pcp"),
    ),
    Refused(
        "an SQLite database", "write its texts to a file: sqlite3 {} 'select ...'", _at(b"SQLite format 3\0")
    ),
    Refused("a PDF", "extract its text first: pdftotext {}", _at(b"%PDF-"), (".pdf",)),
    Refused(
        "a document of a word processor",
        "save it as plain text first",
        _at(b"{\\rtf", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        (".doc", ".docx", ".odt", ".rtf"),
    ),
    Refused(
        "a film, a sound, or an image in a format that is not read",
        SAMPLES,
        _at(
            b"II*\0",
            b"MM\0*",
            b"OggS\0",
            b"fLaC\0",
        ),
        (".tif", ".tiff", ".wav", ".mp3", ".mp4", ".ogg", ".flac"),
    ),
    Refused("a program of the machine", "give the text to train on", _at(b"\x7fELF", b"\xcf\xfa\xed\xfe")),
    Refused(
        "text in UTF-16 or UTF-32, not in UTF-8",
        "convert it: iconv -f UTF-16 -t UTF-8 {} > text.txt (or -f UTF-32)",
        _at(b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"),
    ),
)
"""The first that a file is of counts."""
