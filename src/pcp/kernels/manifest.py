"""What manifests of kernels from outside have in common: reading `kernel.toml`, and saying what is wrong with it."""

import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.kernels.registry import FAMILIES

MANIFEST = "kernel.toml"
NONFINITE = ("exact", "nan", "spreads")

ENTRY = re.compile(r"[\w./-]+\.py:[A-Za-z_]\w*|[\w./-]+\.mlir")
EXPECTED_ENTRY = "'FILE.py:FUNCTION' or 'FILE.mlir'"

_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")


class InvalidCandidate(PCPError):
    """A folder that holds no kernel, or whose manifest says something that is not understood."""


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest in a folder, as TOML gives it.

    Raises:
        InvalidCandidate: there is none, or it cannot be read.
    """
    place = Path(folder) / MANIFEST
    if place.exists() and not place.is_file():
        raise InvalidCandidate(
            f"{place} is no plain file; expected one, as docs/outside/kernels_from_outside.md describes"
        )
    try:
        return tomllib.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidCandidate(
            f"{place.parent} has no file {MANIFEST}; expected a folder with one, as "
            "docs/outside/kernels_from_outside.md describes"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidCandidate(f"{place} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of many digits, lists in lists in lists
        raise InvalidCandidate(f"{place} is not TOML: {error}") from None


def name_of(manifest: Mapping[str, Any], families: Collection[str]) -> str:
    """The name of a kernel, which begins with a family's."""
    name = text_of(manifest, "name")
    if not _NAME.fullmatch(name):
        raise InvalidCandidate(
            f"name = {name!r}; expected a family, a dot, and lower-case letters, digits and _, as softmax.chunked"
        )
    if name.partition(".")[0] not in families:
        raise InvalidCandidate(
            f"name = {name!r} does not begin with a known family; choose one of {', '.join(families)}"
        )
    if any(name in each.kernels for each in FAMILIES.values()):
        raise InvalidCandidate(
            f"name = {name!r} is the name of one of PCP's own kernels; choose another name"
        )
    return name


def version_of(manifest: Mapping[str, Any]) -> int:
    """The version of a kernel; 1 where none is stated."""
    version = manifest.get("version", 1)
    if type(version) is not int or version < 1:
        raise InvalidCandidate(f"version = {version!r}; expected a positive integer")
    return version


def entry_of(
    folder: Path, key: str, text: str, pattern: re.Pattern[str] = ENTRY, expected: str = EXPECTED_ENTRY
) -> tuple[str, str | None]:
    """The file that an entry names, and the function in it; None where it names none."""
    if not pattern.fullmatch(text):
        raise InvalidCandidate(f"{key} = {text!r}; expected {expected}")
    file, _, function = text.partition(":")
    return file_of(folder, key, text, file), function or None


def file_of(folder: Path, key: str, text: str, file: str) -> str:
    """A file that a manifest names, which is in the folder."""
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InvalidCandidate(
            f"{key} = {text!r} lies outside of the folder; all files of a kernel must be in its folder"
        )
    if not path.is_file():
        raise InvalidCandidate(f"{key} = {text!r}, but there is no file {file} in the folder")
    return file


def only_known(what: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse keys that nobody knows."""
    for key in table:
        if key not in known:
            raise InvalidCandidate(f"unknown {what} {key!r}; there are {', '.join(known)}")


def text_of(manifest: Mapping[str, Any], key: str) -> str:
    """A text that must be there."""
    if key not in manifest:
        raise InvalidCandidate(f'{key} is missing; expected {key} = "..."')
    value = manifest[key]
    if not isinstance(value, str) or not value.strip():
        raise InvalidCandidate(f"{key} = {value!r}; expected a text")
    return value


def table_of(manifest: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A table, empty where there is none."""
    value = manifest.get(key, {})
    if not isinstance(value, dict):
        raise InvalidCandidate(f"{key} = {value!r}; expected a table")
    return value


def list_of(key: str, value: Any, kind: type, expected: str) -> list[Any]:
    """A list of things of one kind."""
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise InvalidCandidate(f"{key} = {value!r}; expected a list of {expected}")
    return value


def one_of(key: str, value: Any, known: Sequence[str]) -> str:
    """One of some words."""
    if value not in known:
        raise InvalidCandidate(f"{key} = {value!r}; expected one of {', '.join(map(repr, map(str, known)))}")
    return str(value)


def positive(key: str, value: Any) -> float:
    """A number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value < 1.0:
        raise InvalidCandidate(f"{key} = {value!r}; expected a number between 0 and 1")
    return float(value)
