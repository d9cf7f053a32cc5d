"""On which addresses a process and those that it started listen."""

import contextlib
import ipaddress
import os
from pathlib import Path

LISTENING = "0A"


def listened_on(process: int) -> set[str]:
    """The addresses of listening sockets of a process and of all below it."""
    owned = {socket for each in _below(process) for socket in _sockets(each)}
    return {
        address
        for file in ("tcp", "tcp6")
        for address, socket in _listening(Path("/proc/net") / file)
        if socket in owned
    }


def _below(process: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, new = {process}, {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def _sockets(process: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry).removeprefix("socket:[").rstrip("]"))
    return found


def _listening(table: Path) -> list[tuple[str, str]]:
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    return [(_address(row[1].partition(":")[0]), row[9]) for row in rows if row[3] == LISTENING]


def _address(digits: str) -> str:
    """An address of the table: words of four bytes, each turned around."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
