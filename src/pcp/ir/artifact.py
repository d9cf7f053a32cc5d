"""Portable artifacts: programs in VHLO, the form of StableHLO that any newer library reads."""

import bisect
import re
from collections.abc import Callable
from typing import Any

from pcp.ir.bindings import InvalidProgram, context, ir, parse_module, run_passes, stablehlo
from pcp.ir.signature import NODES
from pcp.ir.toolkit.attributes import string_of, symbol_name
from pcp.ir.toolkit.inlining import flatten, names_functions
from pcp.ir.toolkit.legalisation import legalise_chlo
from pcp.ir.toolkit.walking import named_operations

# The version of VHLO in which programs travel. Any newer StableHLO reads it; version 1.10 is the first with every
# operation that PCP emits.
ARTIFACT_VERSION = "1.10.0"


class InvalidVersion(InvalidProgram):
    """A version of StableHLO that there is none of, or that the library does not write."""


def is_named_site(op: ir.Operation) -> bool:
    """Whether a composite is the name of a site, and all of it is in its function."""
    return string_of(op.attributes["name"]).startswith("pcp.")


def artifact_of(bytecode: bytes, version: str = ARTIFACT_VERSION, *, named: bool = False) -> bytes:
    """The portable (VHLO) artifact, without locations, of a module given as bytecode.

    Composites are written out, but those that name functions besides their decomposition, and with `named` those of PCP.

    Raises:
        InvalidVersion: there is no such version.
        InvalidProgram: an operation has no portable form at that version; the message names it and the oldest that has one.
    """
    versions = _versions()
    asked = _numbers(version)
    if not asked or not _numbers(versions[0]) <= asked <= _numbers(versions[-1]):
        raise InvalidVersion(
            f"the program has no portable form at StableHLO version {version!r}; expected one from {versions[0]} to "
            f"{versions[-1]}, of the form '1.8.0'"
        )
    module = parse_module(bytecode)
    flatten(module, keep=lambda op: names_functions(op) or (named and is_named_site(op)))
    _plain(module)
    _as_text(module)
    artifact, operation = _serialized(module, version)
    if artifact is not None:
        return artifact
    later = [each for each in versions if _numbers(each) > asked]
    oldest = bisect.bisect_left(later, True, key=lambda each: _serialized(module, each)[0] is not None)
    remedy = (
        f"expected version {later[oldest]} or a later one"
        if oldest < len(later)
        else f"no version up to {versions[-1]} has it"
    )
    raise InvalidProgram(
        f"the program has no portable form at StableHLO version {version}, which does not have {operation} as it is used; "
        f"{remedy}"
    )


def _numbers(version: object) -> tuple[int, ...]:
    """The three numbers of a version; none if it is no version."""
    is_one = isinstance(version, str) and re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){2}", version)
    return tuple(map(int, str(version).split("."))) if is_one else ()


def _versions() -> list[str]:
    """The versions that the library writes, from the oldest: all minor ones, and the oldest and the newest."""
    oldest, newest = map(_numbers, (stablehlo.get_minimum_version(), stablehlo.get_current_version()))
    minor = [(0, n, 0) for n in range(oldest[1] + 1, 21)] + [(1, n, 0) for n in range(newest[1] + 1)]
    return [".".join(map(str, each)) for each in sorted({oldest, newest, *minor})]


def _serialized(module: ir.Module, version: str) -> tuple[bytes | None, str]:
    """The artifact, or the operation that the version does not have."""
    said: list[str] = []

    def hear(diagnostic: ir.Diagnostic) -> bool:
        said.append(str(diagnostic))
        return True  # nothing goes to the terminal

    with context() as own:
        handler: Any = own.attach_diagnostic_handler(hear)  # jaxlib's stubs call it an object
        try:
            return bytes(stablehlo.serialize_portable_artifact(module, version, True)), ""
        except (ir.MLIRError, ValueError) as error:
            said.append(str(error))
        finally:
            handler.detach()
    match = re.search(r"operation '(?:vhlo\.(\w+?)(?:_v\d+)?|([\w.]+))'", " ".join(said))
    if match is None:
        return None, f"something of it ({' '.join(said)[:200]})"
    return None, f"stablehlo.{match[1]}" if match[1] else str(match[2])


def parse_artifact(artifact: bytes) -> ir.Module:
    """The module inside a portable artifact. Only for bytes whose digest was checked: the parser trusts them.

    Raises:
        InvalidProgram: it is no artifact, or a newer one than this library reads.
    """
    try:
        module = stablehlo.deserialize_portable_artifact(context(), artifact)
    except (ir.MLIRError, ValueError) as error:
        newest = stablehlo.get_current_version()
        match = re.search(rb"StableHLO_v(\d+\.\d+\.\d+)", artifact[:64])
        version = f" (they say that they are of version {match[1].decode()})" if match else ""
        raise InvalidProgram(
            f"the bytes are no portable StableHLO artifact up to version {newest}{version}: {error}"
        ) from None
    if b"composite" in artifact:
        _as_symbols(module)
        _as_arrays(module)
    return module


def plain_module(bytecode: bytes) -> ir.Module:
    """A module without attributes of PCP, CHLO or locations, of a module given as bytecode."""
    module = parse_module(bytecode)
    flatten(module)
    _plain(module)
    with context():
        for op in module.body.operations:
            for name in list(op.operation.attributes):
                if name in ("arg_attrs", "res_attrs") or name.startswith("pcp."):
                    del op.operation.attributes[name]
    return module


def _plain(module: ir.Module) -> None:
    for op in module.body.operations:
        for name in [each for each in op.operation.attributes if each.endswith(f".{NODES}")]:
            del op.operation.attributes[name]
    legalise_chlo(module)
    run_passes(module, "builtin.module(strip-debuginfo)")


def _as_text(module: ir.Module) -> None:
    """Write symbols in attributes of composites as text, `"@name"`: VHLO would make them text without a mark."""

    def written(attribute: ir.Attribute) -> ir.Attribute:
        if isinstance(attribute, ir.FlatSymbolRefAttr):
            return ir.StringAttr.get(f"@{attribute.value}")
        return attribute

    _change_attributes(module, written)


def _as_symbols(module: ir.Module) -> None:
    """The inverse of `_as_text`, for what names a function of the module."""
    functions = {
        f"@{symbol_name(op.operation)}" for op in module.body.operations if op.operation.name == "func.func"
    }

    def read(attribute: ir.Attribute) -> ir.Attribute:
        if isinstance(attribute, ir.StringAttr) and (name := string_of(attribute)) in functions:
            return ir.FlatSymbolRefAttr.get(name[1:])
        return attribute

    _change_attributes(module, read)


def _as_arrays(module: ir.Module) -> None:
    """Make integers of named sites `array<i64>` again, in place: VHLO makes tensors of them."""
    with context():
        for op in named_operations(module.operation, "stablehlo.composite"):
            if is_named_site(op) and "composite_attributes" in op.attributes:
                entries = ir.DictAttr(op.attributes["composite_attributes"])
                known = {entries[index].name: entries[index].attr for index in range(len(entries))}
                op.attributes["composite_attributes"] = ir.DictAttr.get(
                    {name: _as_array(attribute) for name, attribute in known.items()}
                )


def _as_array(attribute: ir.Attribute) -> ir.Attribute:
    if not isinstance(attribute, ir.DenseIntElementsAttr):
        return attribute
    return ir.DenseI64ArrayAttr.get([attribute[index] for index in range(len(attribute))])


def _change_attributes(module: ir.Module, change: Callable[[ir.Attribute], ir.Attribute]) -> None:
    """Change what the attributes of composites hold, at any depth, in place; what decomposes them stays."""
    with context():
        for op in named_operations(module.operation, "stablehlo.composite"):
            for name in list(op.attributes):
                attribute = op.attributes[name]
                if name not in ("name", "decomposition") and "@" in str(attribute):
                    op.attributes[name] = _changed(attribute, change)


def _changed(attribute: ir.Attribute, change: Callable[[ir.Attribute], ir.Attribute]) -> ir.Attribute:
    if isinstance(attribute, ir.ArrayAttr):
        return ir.ArrayAttr.get([_changed(entry, change) for entry in attribute])
    if isinstance(attribute, ir.DictAttr):
        entries = [attribute[index] for index in range(len(attribute))]
        return ir.DictAttr.get({entry.name: _changed(entry.attr, change) for entry in entries})
    return change(attribute)
