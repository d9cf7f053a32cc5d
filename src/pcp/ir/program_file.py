"""One file for one Program: found sound or refused before anything in it is believed.

Layout, integers little-endian: magic (8 bytes), format version (4), length of the header (4), length of the
artifact (8), the header (JSON, for people and for errors: the signature, the digest, the library's version),
the portable artifact, SHA-256 of all that. MLIR's own reader trusts its bytes, so the checksum is compared
first.
"""

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir.bindings import InvalidProgram
from pcp.ir.program import Program

MAGIC = b"PCPprog\n"
FORMAT = 1
_FIXED = struct.Struct("<8sIIQ")
_CHECKSUM = 32
# MLIR bytecode, whose producer is StableHLO where it is a portable artifact.
_BYTECODE = b"ML\xefR"


class NotAProgram(PCPError):
    """A file that holds no program of any form that PCP reads."""


class CorruptProgram(PCPError):
    """A program file that is cut off or changed."""


class NewerProgram(PCPError):
    """A program file in a format that this version does not read."""


def save(program: Program, path: str | os.PathLike[str]) -> None:
    """Write a Program to one file, which is whole or absent whatever happens meanwhile.

    Raises:
        InvalidProgram: an operation has no portable form.
        OSError: the file cannot be written.
    """
    artifact = program.artifact()
    header = json.dumps(_header(program, artifact), separators=(",", ":")).encode()
    content = _FIXED.pack(MAGIC, FORMAT, len(header), len(artifact)) + header + artifact
    write_atomically(Path(path), content + hashlib.sha256(content).digest())


def load(path: str | os.PathLike[str]) -> Program:
    """The Program in a file: one that `save` wrote, MLIR text, MLIR bytecode, or a portable StableHLO
    artifact.

    Raises:
        NotAProgram: it is none of these.
        CorruptProgram: `save` wrote it, and it has changed since or is cut off.
        NewerProgram: a later version of PCP wrote it.
        InvalidProgram: it is MLIR, but no valid program.
        OSError: it cannot be read.

    A file that `save` wrote may come from anywhere. Any other form has no checksum, and MLIR's reader trusts
    it.
    """
    raw = Path(path).read_bytes()
    name = os.fspath(path)
    if raw.startswith(MAGIC) or (raw and MAGIC.startswith(raw)):
        return Program.from_artifact(_checked(raw, name))
    if raw.startswith(_BYTECODE):
        return _named(name, Program.from_artifact if b"StableHLO_v" in raw[:64] else Program.parse, raw)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if any(c < " " and c not in "\t\r\n" for c in text) or not any(
        word in text for word in ("module", "func.func", "stablehlo.")
    ):
        raise NotAProgram(
            f"{name} is no program: it begins with {raw[:16]!r}; expected a file written by Program.save, "
            "MLIR text or bytecode of a StableHLO module, or a portable StableHLO artifact"
        )
    return _named(name, Program.parse, text)


def _named(name: str, read: Callable[[Any], Program], content: str | bytes) -> Program:
    try:
        return read(content)
    except InvalidProgram as error:
        raise InvalidProgram(f"{name}: {error}") from None


def _checked(raw: bytes, name: str) -> bytes:
    """The artifact in the bytes of a file, all of which agree with their checksum."""
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
    return raw[_FIXED.size + header_size : -_CHECKSUM]


_AGAIN = "copy it again, or save the program again"


def _header(program: Program, artifact: bytes) -> dict[str, Any]:
    return {
        "library": _library_version(),
        "digest": program.digest,
        "artifact_sha256": hashlib.sha256(artifact).hexdigest(),
        "arguments": [[entry.name, str(entry.spec), entry.role.value] for entry in program.arguments],
        "results": [[entry.name, str(entry.spec)] for entry in program.results],
    }


def _library_version() -> str:
    try:
        return version("planetary-compute-protocol")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


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
