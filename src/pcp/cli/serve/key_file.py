"""The keys that a server asks for."""

from pathlib import Path

from pcp.errors import PCPError

SHORTEST_KEY = 16


class KeysUnusable(PCPError):
    """A file of keys that cannot be read, has none, or one that is too short."""


def read_keys(file: Path) -> list[str]:
    """The keys in a file.

    Raises:
        KeysUnusable: it cannot be read, has none, or one that is too short to be a secret.
    """
    make = f"make one: openssl rand -hex 32 > {file}"
    try:
        keys = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise KeysUnusable(f"cannot read keys from {file}: {error}; {make}") from None
    if not keys:
        raise KeysUnusable(f"{file} has no key; {make}")
    short = min(keys, key=len)
    if len(short) < SHORTEST_KEY or not all(key.isascii() for key in keys):
        raise KeysUnusable(
            f"a key in {file} has {len(short)} characters; expected {SHORTEST_KEY} or more each, in ASCII; {make}"
        )
    return keys
