"""Whether a program fits in the memory of a device: asked before compiling and before running."""

import os
import re
from collections.abc import Collection, Sequence

from pcp.backends import MemoryUse, OutOfMemory, Target
from pcp.errors import PCPError
from pcp.ir import Argument, Program, Role
from pcp.ir.operations import Operation, operations_of

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_FACTORS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    unit: 1024**power for power, unit in enumerate(_UNITS[1:], start=1)
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class InvalidMemoryLimit(PCPError):
    """A limit that is no number of bytes."""


class InvalidMapped(PCPError):
    """Arguments that cannot lie in files that are mapped for reading."""


def memory_limit(target: Target, asked: int | str | None = None) -> int:
    """Bytes that may be used on each device of a target: its capacity, or less by `asked` or the variable PCP_MEMORY_LIMIT.

    Arguments:
        asked: bytes, or a text like `"2GiB"`, `"500 MB"`.

    Raises:
        InvalidMemoryLimit: the limit is no positive number of bytes.
    """
    limit: object = asked if asked is not None else os.environ.get("PCP_MEMORY_LIMIT") or None
    if limit is None:
        return target.capacity
    match = _SIZE.fullmatch(str(limit))
    count = int(float(match[1]) * _FACTORS[match[2]]) if match is not None and match[2] in _FACTORS else 0
    if not count:
        raise InvalidMemoryLimit(
            f"the memory limit {limit!r} is not a positive number of bytes; give one like {2**30}, '2GiB' or '500MB'"
        )
    return min(target.capacity, count)


def lower_bound(program: Program) -> MemoryUse:
    """What a call takes at least: its arguments and results, less those that share memory."""
    aliases = {entry.alias for entry in program.arguments if entry.alias is not None}
    return MemoryUse(
        arguments=sum(entry.spec.bytes for entry in program.arguments),
        results=sum(entry.spec.bytes for entry in program.results),
        aliased=sum(program.results[index].spec.bytes for index in aliases if index < len(program.results)),
        temporaries=0,
        exact=False,
    )


def mapped_bytes(program: Program, target: Target, names: Collection[str]) -> int:
    """How many bytes of the arguments lie in files that are mapped for reading, and need not fit in memory.

    Arguments:
        names: of arguments; a name also stands for all that are nested in it.

    Raises:
        InvalidMapped: no argument has a name, or a call writes to it, or the device has a memory of its own.
    """
    if names and target.platform != "cpu":
        raise InvalidMapped(
            f"mapped is {sorted(names)}, and {target.places} copies all arguments to its own memory; plan for cpu:0 or "
            "arena:cpu"
        )
    entries: dict[int, Argument] = {}
    for name in names:
        here = {
            place: entry
            for place, entry in enumerate(program.arguments)
            if entry.name == name or entry.name.startswith(f"{name}.")
        }
        if not here:
            known = ", ".join(entry.name for entry in program.arguments[:8])
            raise InvalidMapped(f"mapped names {name!r}; the program's arguments are {known}")
        entries |= here
    for entry in entries.values():
        if entry.alias is not None or entry.role is Role.state:
            raise InvalidMapped(
                f"mapped names {entry.name}, which is state, and a file that is mapped for reading cannot be written"
            )
    return sum(entry.spec.bytes for entry in entries.values())


def check_capacity(program: Program, use: MemoryUse, target: Target, limit: int, tried: str = "") -> None:
    """Compare what a call takes on each device with what the device has.

    Arguments:
        tried: what was tried to make it fit, for people.

    Raises:
        OutOfMemory: it takes more; the message says how much and what the largest parts are.
    """
    if use.peak <= limit:
        return
    kind = "" if use.exact else "at least "
    parts = [f"arguments {human(use.arguments)}", f"results {human(use.results)}"]
    if use.exact:
        parts.append(f"temporaries {human(use.temporaries)}")
    lines = [
        f"the program needs {kind}{human(use.peak)} on {target.places}, which has {human(limit)}: "
        f"{', '.join(parts)}, "
        f"less {human(use.aliased)} that donated arguments share with results",
        f"  largest arguments: {_largest_arguments(program.arguments)}",
    ]
    if use.exact and use.temporaries:
        lines.append(f"  largest values inside: {_largest_values(operations_of(program))}")
    lines += [f"  {tried}"] * bool(tried)
    lines.append(f"  {_advice(use)}")
    raise OutOfMemory("\n".join(lines))


def human(count: int) -> str:
    """A number of bytes as people write it."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"


def _largest_arguments(arguments: Sequence[Argument]) -> str:
    ordered = sorted(arguments, key=lambda entry: -entry.spec.bytes)[:3]
    return "; ".join(f"{entry.name} {entry.spec}, {human(entry.spec.bytes)}" for entry in ordered) or "none"


def _largest_values(operations: Sequence[Operation]) -> str:
    ordered = sorted(operations, key=lambda op: -op.bytes)[:3]
    return "; ".join(
        f"{op.name} {', '.join(map(str, op.specs))}, {human(op.bytes)}, at {op.location or 'an unknown line'}"
        for op in ordered
    )


def _advice(use: MemoryUse) -> str:
    if use.temporaries > use.arguments:
        return "use a smaller batch or shorter sequences, or a device with more memory"
    if use.aliased < min(use.arguments, use.results) // 2:
        return (
            "give the role 'state' to arguments that the program replaces, so that results use their memory"
        )
    return "use a smaller model or batch, or a device with more memory"
