"""Frozen dataclasses to canonical JSON and back, for the event log and for digests.

A dataclass becomes an object whose "_" names its class; only registered classes are ever made from a log,
so a log cannot name arbitrary code. Sequences come back as tuples.
"""

import json
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pcp.errors import PCPError


class UnknownRecord(PCPError):
    """A stored record names a class, or a field, that this version of PCP does not know."""


T = TypeVar("T")

_classes: dict[str, type] = {}


def storable(cls: type[T]) -> type[T]:
    """Register a dataclass as one that may be stored; use as a decorator."""
    _classes[cls.__name__] = cls
    return cls


def register(*classes: type) -> None:
    """Register dataclasses that are defined elsewhere as ones that may be stored."""
    _classes.update({cls.__name__: cls for cls in classes})


def _to_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        if _classes.get(name) is not type(value):
            raise UnknownRecord(f"{name} cannot be stored: it is not registered with `storable`")
        return {"_": name} | {field.name: _to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, bytes):
        return {"_": "bytes", "hex": value.hex()}
    if isinstance(value, dict):
        return {"_": "map", "items": [[key, _to_json(item)] for key, item in sorted(value.items())]}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(item) for item in value)
    if not isinstance(value, dict):
        return value
    name = value["_"]
    if name == "bytes":
        return bytes.fromhex(value["hex"])
    if name == "map":
        return {key: _from_json(item) for key, item in value["items"]}
    if name not in _classes:
        raise UnknownRecord(
            f'the event log holds a record "{name}"; this version of PCP does not know it: use the one that wrote it'
        )
    arguments = {key: _from_json(item) for key, item in value.items() if key != "_"}
    try:
        return _classes[name](**arguments)
    except TypeError as error:
        raise UnknownRecord(
            f'the event log holds a record "{name}" with fields {sorted(arguments)}: {error}; '
            "use the version of PCP that wrote it"
        ) from None


def encode(value: Any) -> bytes:
    """Return the canonical JSON of a storable value: equal values give equal bytes."""
    return json.dumps(_to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def decode(data: bytes) -> Any:
    """Return the value that `encode` stored.

    Raises:
        UnknownRecord: the data is not JSON, or names a class or field that is not registered.
    """
    try:
        value = json.loads(data)
    except ValueError as error:
        raise UnknownRecord(
            f"a record of the event log is not JSON ({error}); the log was written by something else"
        ) from None
    return _from_json(value)
