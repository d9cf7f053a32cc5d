"""One file for one Program: found sound or refused before anything in it is believed.

Layout, integers little-endian: magic (8 bytes), format version (4), length of the header (4), length of the
artifact (8), the header (JSON: for people and for errors the signature, the digest and the library's version, and
what arguments begin with), the portable artifact, SHA-256 of all that. MLIR's own reader trusts its bytes, so the
checksum is compared first.
"""

import contextlib
import errno
import functools
import hashlib
import importlib
import json
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from pcp.errors import PCPError
from pcp.ir.artifact import parse_artifact
from pcp.ir.bindings import InvalidProgram, ir, parse_module
from pcp.ir.specializing import choose_main, refine
from pcp.ir.tuples import flatten_tuples
from pcp.ir.unchecked import CorruptProgram, is_artifact, reread

T = TypeVar("T")

MAGIC = b"PCPprog\n"
FORMAT = 1
_FIXED = struct.Struct("<8sIIQ")
_CHECKSUM = 32
# MLIR bytecode, of a portable artifact or not.
_BYTECODE = b"ML\xefR"
_CODE = (".py", ".cc", ".h")

LEFT_OPEN: Sequence[Any] = []
"""Instead of shapes: sizes that are open stay so."""

OTHER_FORMS = {b"PCPsymb\n": "pcp.symbolic.program:SymbolicProgram"}
"""By the first eight bytes of a file, the class of a later layer whose `from_artifact` reads it, imported when one is met."""


class UnreadableFile(PCPError, OSError):
    """A file that is not there, or is not of the kind that was asked for."""


class UnwritableFile(PCPError, OSError):
    """A file that cannot be written."""


@contextlib.contextmanager
def reading(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """The block reads a file.

    Arguments:
        what: what the file should hold, as `the program`.
        path: the file.

    Raises:
        UnreadableFile: it cannot be read.
    """
    try:
        yield
    except UnreadableFile:
        raise
    except OSError as error:
        raise UnreadableFile(f"cannot read {what} {os.fspath(path)}: {reason(error)}") from None


@contextlib.contextmanager
def writing(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """The block writes a file.

    Raises:
        UnwritableFile: it cannot be written.
        OSError: the disk is full.
    """
    try:
        yield
    except UnwritableFile:
        raise
    except OSError as error:
        if path is None or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UnwritableFile(f"cannot write {os.fspath(path)}: {reason(error)}") from None


def read_named(what: str, path: str | os.PathLike[str]) -> bytes:
    """What is in a file that a user named; raises as `reading`."""
    with reading(what, path):
        return Path(path).read_bytes()


def write_named(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that a user named, whole or not at all; raises as `writing`."""
    with writing(path):
        write_atomically(Path(path), content)


def reason(error: OSError) -> str:
    """Why a file cannot be used, and what to look at."""
    known = {
        errno.ENOENT: "there is no such file or folder",
        errno.EEXIST: "a file stands there; expected a folder, or nothing",
        errno.ENOTDIR: "a file stands where a folder is expected",
        errno.EISDIR: "it is a folder; expected a file",
        errno.EACCES: "you have no permission",
        errno.EPERM: "you have no permission",
        errno.EROFS: "the file system can only be read",
    }
    return known.get(error.errno or 0, error.strerror or str(error))


class NotAProgram(PCPError):
    """A file that holds no program of any form that PCP reads."""


class NewerProgram(PCPError):
    """A program file in a format that this version does not read."""


def write(path: str | os.PathLike[str], artifact: bytes, header: Mapping[str, Any]) -> None:
    """Write the artifact of a Program to one file, which is whole or absent whatever happens meanwhile.

    Arguments:
        path: the file.
        artifact: a portable artifact.
        header: what people and errors are told of it.

    Raises:
        UnwritableFile: the file cannot be written.
    """
    more = {"library": library_version(), "artifact_sha256": hashlib.sha256(artifact).hexdigest()}
    text = json.dumps(more | dict(header), separators=(",", ":")).encode()
    content = _FIXED.pack(MAGIC, FORMAT, len(text), len(artifact)) + text + artifact
    write_named(path, content + hashlib.sha256(content).digest())


def read(
    path: str | os.PathLike[str],
    main: str | None,
    shapes: Sequence[Any] | None,
    make: Callable[[ir.Module], T],
) -> tuple[T, dict[str, Any]]:
    """What is made of the module in a file, one that `write` wrote, or one of another tool, and what it says besides; see
    `pcp.load`."""
    raw = read_named("the program", path)
    name = os.fspath(path)
    other = OTHER_FORMS.get(raw[:8])
    if other is not None:
        if main is not None or shapes is not None:
            raise NotAProgram(
                f"{name} is a symbolic program, which takes neither main nor shapes; expected sizes: pcp.load(file).at(...)"
            )
        module, _, form = other.partition(":")
        program: T = getattr(importlib.import_module(module), form).from_artifact(raw, name)
        return program, {}
    if raw.startswith(MAGIC) or (raw and MAGIC.startswith(raw)):
        header, artifact = _checked(raw, name)
        return make(_specialized(parse_artifact(artifact), main, shapes)), header
    try:
        return make(_specialized(_foreign_module(raw, name), main, shapes)), {}
    except (InvalidProgram, CorruptProgram) as error:
        raise type(error)(f"{name}: {error}") from None


def _specialized(module: ir.Module, main: str | None, shapes: Sequence[Any] | None) -> ir.Module:
    flatten_tuples(module)
    if main is not None:
        choose_main(module, main)
    if shapes is not LEFT_OPEN:
        refine(module, shapes)
    return module


def _foreign_module(raw: bytes, name: str) -> ir.Module:
    """A module in any form but that of `write`."""
    if is_compiled(raw):
        raise NotAProgram(
            f"{name} is what `pcp compile` made of a program, machine code for one chip: `pcp run` and Workers run it; "
            "give the program that it was made of"
        )
    inside = raw if raw.startswith(_BYTECODE) else _inside_jax_export(raw)
    if inside is not None:
        return parse_module(reread(inside))
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if any(c < " " and c not in "\t\r\n" for c in text) or not any(
        word in text for word in ("module", "func.func", "stablehlo.")
    ):
        raise NotAProgram(
            f"{name} is not a program: it begins with {raw[:16]!r}; expected a file written by Program.save, "
            "MLIR text or bytecode of a StableHLO module, a portable StableHLO artifact, or what jax.export serialised"
        )
    return parse_module(text)


def is_compiled(raw: bytes) -> bool:
    """Whether a file begins as those of `pcp compile`, which are ZIP archives with a description of PCP's first."""
    return raw.startswith(b"PK\x03\x04") and raw[30:38] == b"pcp.json"


def _inside_jax_export(raw: bytes) -> bytes | None:
    """The portable artifact in a FlatBuffer of jax.export, in which its length stands before it."""
    start = raw.find(_BYTECODE)
    if start < 4 or not is_artifact(raw[start:]):
        return None
    size = int.from_bytes(raw[start - 4 : start], "little")
    if start + size > len(raw):
        raise CorruptProgram(
            f"it is cut off: it has {len(raw)} bytes and announces {start + size} or more; {_AGAIN}"
        )
    return raw[start : start + size]


def _checked(raw: bytes, name: str) -> tuple[dict[str, Any], bytes]:
    """The header and the artifact in the bytes of a file, all of which agree with their checksum."""
    if len(raw) < _FIXED.size + _CHECKSUM:
        raise CorruptProgram(
            f"{name} is cut off: it has {len(raw)} bytes, less than any program file; {_AGAIN}"
        )
    _, format_, header_size, artifact_size = _FIXED.unpack_from(raw)
    expected = _FIXED.size + header_size + artifact_size + _CHECKSUM
    sound = hashlib.sha256(raw[:-_CHECKSUM]).digest() == raw[-_CHECKSUM:]
    if sound and format_ > FORMAT:
        raise NewerProgram(
            f"{name} has format {format_}, this version of PCP reads up to {FORMAT}; "
            "update planetary-compute-protocol"
        )
    if len(raw) != expected:
        raise CorruptProgram(f"{name} has {len(raw)} bytes where {expected} are announced; {_AGAIN}")
    if not sound:
        raise CorruptProgram(f"{name} has changed since it was written: its checksum differs; {_AGAIN}")
    text, artifact = raw[_FIXED.size :][:header_size], raw[_FIXED.size + header_size : -_CHECKSUM]
    try:
        return dict(json.loads(text)), artifact
    except (ValueError, TypeError, RecursionError):
        raise CorruptProgram(f"{name} has a header that is no JSON object; {_AGAIN}") from None


_AGAIN = "copy it again, or save the program again"


def library_version() -> str:
    """The version of PCP."""
    try:
        return version("planetary-compute-protocol")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


@functools.cache
def code_digest() -> str:
    """The digest of PCP's own files: what they make of equal programs is equal."""
    root = Path(__file__).parents[1]
    files = sorted(path for path in root.rglob("*") if path.suffix in _CODE)
    parts = (f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file in one step for whoever reads it: under another name in the same folder, then renamed.

    Raises:
        OSError: it cannot be written; an older file of that name is as it was.
    """
    temporary = path.with_name(f".{path.name[:32]}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
