"""One file, or a row of bytes, for a symbolic program: its constraints and the portable artifacts of its Programs.

Layout, integers little-endian: magic (8 bytes), format version (4), length of the header (4), length of the packed artifacts
(8), the header (JSON: symbols, constraints, sizes and digest of each artifact, the sizes at which it was compared with its
source, why choices by size may be unseen, and what a reader is told), the artifacts one after another, packed by zlib, SHA-256
of all that. Of expressions only quotients and remainders are written, as hints: whoever reads the Programs finds them again, so
there is nothing in the file that is not checked.
"""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from pcp.ir import Program
from pcp.ir.program_file import NewerProgram, library_version, write_named
from pcp.ir.unchecked import CorruptProgram
from pcp.symbolic.checking import Evidence
from pcp.symbolic.constraints import LARGEST as LARGEST_SIZE
from pcp.symbolic.constraints import MOST_SYMBOLS, Constraint, InvalidConstraint, Space
from pcp.symbolic.expressions import LONGEST, Expression, InvalidSize

MAGIC = b"PCPsymb\n"
FORMAT = 3
_FIXED = struct.Struct("<8sIIQ")
_CHECKSUM = 32
_MOST_PROGRAMS = 16
LARGEST = 1 << 30
_MOST_SIZES = 4096
_EARLIER = "an earlier version of PCP wrote the file, which did not say whether choices by size were seen"
_AGAIN = "copy it again, or save the program again"

Programs = tuple[tuple[tuple[int, ...], Program], ...]
Hints = tuple[Expression, ...]
Read = tuple[Space, list[tuple[tuple[int, ...], bytes]], Evidence, Hints]


def packed(
    space: Space, programs: Programs, evidence: Evidence, hints: Hints = (), *, named: bool = False
) -> bytes:
    """A symbolic program as bytes.

    Arguments:
        evidence: at which sizes it was compared with its source.
        hints: quotients and remainders that are in its sizes.
        named: whether composites that name sites stay, as in `Program.artifact`.

    Raises:
        InvalidProgram: an operation has no portable form.
    """
    artifacts = [program.artifact(named=named) for _, program in programs]
    header = {
        "library": library_version(),
        "symbols": list(space.symbols),
        "constraints": [[str(entry), entry.place] for entry in space.constraints],
        "spans": [list(span) for span in evidence.spans],
        "compared": [list(sizes) for sizes in evidence.sizes[:_MOST_SIZES]] if evidence.unseen else [],
        "quotients": [str(hint) for hint in hints],
        "unseen": evidence.unseen[:LONGEST],
        "programs": [
            {"sizes": list(sizes), "bytes": len(artifact), "sha256": hashlib.sha256(artifact).hexdigest()}
            for (sizes, _), artifact in zip(programs, artifacts, strict=True)
        ],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    body = zlib.compress(b"".join(artifacts), 6)
    content = _FIXED.pack(MAGIC, FORMAT, len(text), len(body)) + text + body
    return content + hashlib.sha256(content).digest()


def unpacked(raw: bytes, name: str = "the symbolic program", largest: int = LARGEST) -> Read:
    """The space, by sizes the artifacts, and the evidence in the bytes of a symbolic program; checked before it is believed.

    Arguments:
        largest: bytes that the artifacts may take together, unpacked.

    Raises:
        CorruptProgram: the bytes are cut off, have changed, or say something that no symbolic program says.
        NewerProgram: a later version of PCP wrote them.
    """
    if len(raw) < _FIXED.size + _CHECKSUM or not raw.startswith(MAGIC):
        raise CorruptProgram(
            f"{name} is cut off or is no symbolic program: it has {len(raw)} bytes; {_AGAIN}"
        )
    _, format_, header_size, body_size = _FIXED.unpack_from(raw)
    sound = hashlib.sha256(raw[:-_CHECKSUM]).digest() == raw[-_CHECKSUM:]
    if not sound or len(raw) != _FIXED.size + header_size + body_size + _CHECKSUM:
        raise CorruptProgram(
            f"{name} has changed since it was written or is cut off: its checksum differs; {_AGAIN}"
        )
    if format_ > FORMAT:
        raise NewerProgram(
            f"{name} has format {format_}, this version of PCP reads up to {FORMAT}; update planetary-compute-protocol"
        )
    header = raw[_FIXED.size : _FIXED.size + header_size]
    try:
        return _read(json.loads(header), format_, raw[_FIXED.size + header_size : -_CHECKSUM], largest)
    except (
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        InvalidConstraint,
        InvalidSize,
        zlib.error,
    ) as error:
        raise CorruptProgram(
            f"{name} says something that no symbolic program says: {error}; {_AGAIN}"
        ) from None


def _read(header: dict[str, list[object]], format_: int, body: bytes, largest: int) -> Read:
    symbols = [str(entry) for entry in header["symbols"]]
    if not 1 <= len(symbols) <= MOST_SYMBOLS or not all(s.isidentifier() for s in symbols):
        raise ValueError(f"its symbols are {symbols!r:.80}")
    constraints: list[Constraint] = []
    for entry in header["constraints"]:
        text, place = map(str, list(entry))  # type: ignore[call-overload]  # a list of two, or this raises
        parsed = Constraint.parse(text)
        constraints.append(Constraint(parsed.left, parsed.sign, parsed.right, place[:LONGEST]))
    space = Space.of(symbols, constraints)
    entries = header["programs"]
    total = sum(_number(entry, "bytes") for entry in entries)
    if not 2 <= len(entries) <= _MOST_PROGRAMS or not 0 < total <= largest:
        raise ValueError(f"it announces {len(entries)} programs of {total} bytes")
    unpacker = zlib.decompressobj()
    whole = unpacker.decompress(body, total + 1)
    if len(whole) != total:
        raise ValueError(f"its programs have {len(whole)} bytes or more, where {total} are announced")
    made_programs, start = [], 0
    for entry in entries:
        size = _number(entry, "bytes")
        artifact = whole[start : start + size]
        start += size
        sizes = tuple(int(each) for each in entry["sizes"])  # type: ignore[index]  # a dictionary, or this raises
        if hashlib.sha256(artifact).hexdigest() != entry["sha256"]:  # type: ignore[index]  # as above
            raise ValueError("the digest of a program differs")
        if len(sizes) != len(symbols) or not space.admits(dict(zip(symbols, sizes, strict=True))):
            raise ValueError(f"the sizes {sizes} of a program are not among those that it takes")
        made_programs.append((sizes, artifact))
    sizes_of_programs = tuple(sizes for sizes, _ in made_programs)
    if format_ < FORMAT:
        return space, made_programs, Evidence((), sizes_of_programs, _EARLIER), ()
    hints = tuple(Expression.of(str(text)) for text in header["quotients"][:_MOST_SIZES])
    if any(name not in space.symbols for hint in hints for name in hint.symbols):
        raise ValueError(f"its quotients are {list(map(str, hints))!r:.80}")
    return space, made_programs, _evidence(header, sizes_of_programs), hints


def _evidence(header: dict[str, list[object]], programs: tuple[tuple[int, ...], ...]) -> Evidence:
    pairs: Any = header["spans"]
    spans = tuple((int(least), int(most)) for least, most in pairs)
    if len(spans) != len(programs[0]) or not all(1 <= least <= most <= LARGEST_SIZE for least, most in spans):
        raise ValueError(f"its spans are {spans!r:.80}")
    compared = tuple(tuple(map(int, sizes)) for sizes in header["compared"])  # type: ignore[call-overload]  # lists, or this raises
    if len(compared) > _MOST_SIZES or any(len(sizes) != len(spans) for sizes in compared):
        raise ValueError(f"the sizes that were compared are {compared!r:.80}")
    return Evidence(spans, tuple(dict.fromkeys((*programs, *compared))), str(header["unseen"])[:LONGEST])


def _number(entry: object, name: str) -> int:
    number = entry[name]  # type: ignore[index]  # a dictionary, or this raises
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= LARGEST:
        raise ValueError(f"its {name} are {number!r:.40}")
    return number


def write(
    path: str | os.PathLike[str],
    space: Space,
    programs: Sequence[tuple[tuple[int, ...], Program]],
    evidence: Evidence,
    hints: Hints = (),
) -> None:
    """Write a symbolic program to one file, which is whole or absent whatever happens meanwhile."""
    write_named(path, packed(space, tuple(programs), evidence, hints))
