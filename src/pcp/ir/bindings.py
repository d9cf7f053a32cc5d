"""The one door to jaxlib's MLIR bindings: context, parsing, bytecode, portable artifacts, passes.

An upgrade of jaxlib is an edit of this file. Rules that the bindings impose, each learnt from a crash:
the context never starts threads (a fork would hang); a wrapper is never kept across a pass; a module is held as long as
anything inside it; and `serialize_portable_artifact` is only given a module of its own, because it rewrites it in place.
"""

import functools
import io
import os
import re
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as jax does before it loads jaxlib: warnings, no chatter

from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

from pcp.errors import PCPError
from pcp.ir.nesting import check_brackets

__all__ = [
    "InvalidProgram",
    "Value",
    "bytecode_of",
    "check_strings",
    "context",
    "inline_function",
    "ir",
    "operation_names",
    "parse_module",
    "refine_dynamic",
    "run_passes",
    "stablehlo",
    "verify",
]

if TYPE_CHECKING:
    Value = ir.Value[Any]  # in the stubs it is generic over the class of its MLIR type
else:
    Value = ir.Value


class InvalidProgram(PCPError):
    """Text, bytes or a module that is no valid StableHLO program."""


@functools.cache
def context() -> ir.Context:
    """The process-wide MLIR context with the StableHLO, CHLO, Shardy and func dialects."""
    stablehlo.register_stablehlo_passes()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    own = ir.Context()
    own.append_dialect_registry(registry)
    own.load_all_available_dialects()
    stablehlo.register_dialect(own)
    chlo.register_dialect(own)
    sdy.register_dialect(own)
    own.enable_multithreading(False)
    return own


def parse_module(source: str | bytes) -> ir.Module:
    """A module from MLIR text or bytecode.

    Raises:
        InvalidProgram: it does not parse or verify, or a string in it is not UTF-8 text.
        NestedTooDeeply: brackets of a text are nested so deep that the parser's stack would end.
    """
    if isinstance(source, str):
        check_brackets(source)
        check_strings(source)
    try:
        return ir.Module.parse(source, context())
    except ir.MLIRError as error:
        if isinstance(source, bytes) and "section alignment" in str(error):
            return _parse_aligned(source)
        raise InvalidProgram(_explain("the program does not parse", error)) from None


_PAGE = 4096
"""Bytes of a page. LLVM maps a file of four pages or more whose size is no multiple of one, and reads any other."""


def _parse_aligned(source: bytes) -> ir.Module:
    """A module from bytecode with blobs, which MLIR only reads where they lie at multiples of their alignment.

    Python does not say where bytes lie, but a mapped file begins at a page. The name of the program's producer, a string
    behind the first bytes that nobody reads, is lengthened until the file is one that LLVM maps.
    """
    padding = 4 * _PAGE + (_PAGE // 2 if len(source) % _PAGE == 0 else 0)
    name_ends = source.index(b"\0", len(b"ML\xefR"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bytecode")
        with open(path, "wb") as file:
            file.write(source[:name_ends] + b" " * padding + source[name_ends:])
        try:
            return ir.Module.parseFile(path, context())
        except ir.MLIRError as error:
            raise InvalidProgram(_explain("the program does not parse", error)) from None


def check_strings(text: str) -> None:
    """Refuse names that are no UTF-8, wherever they stand: MLIR does not care, and Python fails when it meets them.

    The configuration of a custom call may hold any bytes: kernels of Pallas stand there as bytecode.

    Raises:
        InvalidProgram: a string of the text, in which bytes may be written as `\\FF`, is no UTF-8.
    """
    if _HIGH_BYTE.search(text) is None:
        return
    depth = 0  # of brackets within a configuration
    for token in _TOKENS.finditer(text):
        if token["opens"]:
            depth += depth > 0 or token["opens"] != "{"
        elif token["closes"]:
            depth -= depth > 0
        elif not depth:
            raw = re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", _unescaped, token["quoted"].encode())
            try:
                raw.decode()
            except UnicodeDecodeError:
                raise InvalidProgram(
                    f"the program is damaged: {raw[:80]!r} in it is not UTF-8 text"
                ) from None


_HIGH_BYTE = re.compile(r"\\[89A-Fa-f][0-9A-Fa-f]")
_TOKENS = re.compile(
    r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<opens>(?:mhlo\.backend_config\s*=\s*)?\{)|(?P<closes>\})'
)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] == b"\\" else bytes([int(match[1], 16)])


def bytecode_of(module: ir.Module) -> bytes:
    """The module as MLIR bytecode, locations included."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def verify(module: ir.Module) -> None:
    """Check every operation of the module.

    Raises:
        InvalidProgram: the first operation that is wrong, with its location.
    """
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidProgram(_explain("the program does not verify", error)) from None


def run_passes(module: ir.Module, pipeline: str) -> None:
    """Run MLIR passes over the module in place; every wrapper into it is invalid afterwards."""
    with context():
        PassManager.parse(pipeline).run(module.operation)


def refine_dynamic(module: ir.Module) -> None:
    """Turn what `jax.export` calls for want of an operation with open sizes, as `stablehlo.dynamic_reduce_window`, into the
    operation, in place; the arguments' sizes are known. Every wrapper into the module is invalid afterwards.

    Raises:
        InvalidProgram: jaxlib cannot.
    """
    try:
        raw: bytes = _jax.mlir.refine_polymorphic_shapes(
            bytecode_of(module), enable_shape_assertions=False, validate_static_shapes=False
        )
    except (RuntimeError, ValueError) as error:
        raise InvalidProgram(
            f"jaxlib refuses the program with these sizes: {error}; expected operations whose sizes follow from those of the "
            "arguments: export it with shapes that are numbers"
        ) from error
    refined = parse_module(raw)
    with context():
        for op in list(module.body.operations):
            op.operation.erase()
        for op in refined.body.operations:
            module.body.append(op.operation.clone())


def operation_names() -> frozenset[str]:
    """Every operation of StableHLO and CHLO that this jaxlib knows, as `stablehlo.add`."""
    return frozenset(
        entry.OPERATION_NAME
        for dialect in (stablehlo, chlo)
        for entry in vars(dialect).values()
        if isinstance(entry, type) and hasattr(entry, "OPERATION_NAME")
    )


def inline_function(function: ir.Operation, arguments: Sequence[Value]) -> list[Value]:
    """Copy the body of a single-block function to the current insertion point; returns what it returns.

    The location comes from the context, because jaxlib 0.10.2 crashes when it is given as an argument.
    """
    return list(_jax_mlir_ext.inlined_func_call(function, list(arguments)))


def _explain(what: str, error: ir.MLIRError) -> str:
    diagnostics: Sequence[ir.DiagnosticInfo] = error.error_diagnostics
    return "\n".join([f"{what}:", *(f"  {entry.location}: {entry.message}" for entry in diagnostics)])
