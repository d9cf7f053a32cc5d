"""Program: an immutable, verified StableHLO module with one `main`, and the structure of its arguments and results.

A Program is a value. It holds bytecode, from which MLIR objects are made when they are asked for and never shared. Names,
roles and nesting of arguments are attributes of the module itself, so they travel wherever the program does.
"""

import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, overload

from pcp.errors import PCPError
from pcp.ir import bindings, digest, program_file
from pcp.ir.artifact import artifact_of, parse_artifact, plain_module
from pcp.ir.beginnings import Beginning, beginnings_in
from pcp.ir.bindings import ir
from pcp.ir.resources import has_resources, inline_resources
from pcp.ir.signature import Argument, Result, Signature, describe_signature, signature_of
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.walking import check_nesting
from pcp.ir.tree import Tree, flatten_like
from pcp.ir.tuples import flatten_tuples, has_tuples
from pcp.ir.unchecked import CorruptProgram

_JAX = "pcp.importers.jax_callable"
"""A later layer, imported by whoever asks for a function of JAX."""
_PAGES = "pcp.planning.pages"
"""Another, imported by notebooks."""
_CALLED = "pcp.calling.programs"
"""A later layer, imported by whoever calls a program."""


class Runs:
    """What is called with arrays: a program, or what has one."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results for arrays, by a plan that is made at the first call and kept; inside a trace, for Tensors.

        `pcp.jit(program, device=..., tolerance=...)` says how it is planned.

        Arguments:
            arguments: nested as the program's own; those of role `state` are donated.
            named: arguments after these, by their names; not inside a trace.

        Returns:
            `jax.Array`s, nested as the program's results.

        Raises:
            PCPError: what `pcp.plan` and `Plan.run` raise, or, inside a trace, `pcp.call`.
        """
        return importlib.import_module(_CALLED).called(self, arguments, named)


class NotSymbolic(PCPError):
    """Sizes for a program whose sizes are numbers already."""


@dataclass(frozen=True)
class Program(Runs):
    """A verified StableHLO module as canonical bytecode; equal and hashed by that.

    Make one with `pcp.trace`, `Program.parse` or `Program.from_module`, not by the constructor.

    Arguments:
        begins: by names of arguments, what they are known to begin with, as weights and buffers of a module that was imported.
            Plans are measured on such arguments. Files keep it, most transformations drop it.
    """

    bytecode: bytes = field(repr=False)
    begins: Mapping[str, Beginning] = field(default_factory=dict, compare=False, repr=False, kw_only=True)

    @staticmethod
    def parse(source: str | bytes) -> "Program":
        """A program from MLIR text or bytecode.

        Raises:
            InvalidProgram: it does not parse or verify, or has no single public function.
            NestedTooDeeply: regions of operations are nested more than 100 deep.
        """
        return Program.from_module(bindings.parse_module(source))

    @staticmethod
    def from_module(module: ir.Module) -> "Program":
        """A program from a module, which is verified and copied.

        Raises:
            InvalidProgram: the module does not verify, or has no single public function.
            NestedTooDeeply: regions of operations are nested more than 100 deep.
        """
        bindings.verify(module)
        check_nesting(module)
        main = main_of(module)
        if symbol_name(main) != "main":
            with bindings.context():
                main.attributes["sym_name"] = ir.StringAttr.get("main")
        bytecode = bindings.bytecode_of(module)
        if has_resources(bytecode) or has_tuples(module, bytecode):
            # As text: what has blobs is not always read again from bytecode.
            module = bindings.parse_module(str(module.operation.get_asm(enable_debug_info=True)))
            inline_resources(module)
            flatten_tuples(module)
            bindings.verify(module)
            bytecode, main = bindings.bytecode_of(module), main_of(module)
        program = Program(bytecode)
        program.__dict__["_signature"] = signature_of(main)
        return program

    def at(self, **sizes: int) -> "Program":
        """This program. Of a symbolic program, the Program at sizes of its symbols: `program.at(length=512)`.

        Raises:
            NotSymbolic: sizes are given, and this program has no symbols.
        """
        if sizes:
            raise NotSymbolic(
                f"sizes were given ({', '.join(f'{name}={size}' for name, size in sizes.items())}); the program has no "
                'symbols, so expected none: trace it with symbols, as pcp.spec(("length", 64), "f32"), or leave the sizes out'
            )
        return self

    def module(self) -> ir.Module:
        """A fresh MLIR module of this program, the caller's to change."""
        return bindings.parse_module(self.bytecode)

    @functools.cached_property
    def _signature(self) -> "Signature":
        module = self.module()
        return signature_of(main_of(module))

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Every array the program takes, in order."""
        return self._signature.arguments

    @property
    def results(self) -> tuple[Result, ...]:
        """Every array the program returns, in order."""
        return self._signature.results

    @property
    def argument_tree(self) -> Tree:
        """The nesting of the arguments: a tuple with one entry for each."""
        return self._signature.argument_tree

    @property
    def result_tree(self) -> Tree:
        """The nesting of the result."""
        return self._signature.result_tree

    @functools.cached_property
    def digest(self) -> str:
        """The structural digest: equal for programs with the same dataflow, whatever their names, order and locations."""
        return digest.digest_of(self.bytecode)

    @property
    def text(self) -> str:
        """The program as MLIR text."""
        return str(self.module())

    def artifact(self, *, named: bool = False) -> bytes:
        """The program as a portable StableHLO artifact at the pinned version, without locations.

        Arguments:
            named: whether composites that name sites stay, so that whoever plans the program finds those, too. The digest of
                the program is the same.

        Raises:
            InvalidProgram: an operation has no portable form.
        """
        return artifact_of(self.bytecode, named=named)

    @overload
    def to_stablehlo(self, version: None = None) -> str: ...
    @overload
    def to_stablehlo(self, version: str) -> bytes: ...
    def to_stablehlo(self, version: str | None = None) -> str | bytes:
        """The program for other tools: plain StableHLO, without the names, roles and nesting that only PCP reads.

        Arguments:
            version: of StableHLO, `"1.8.0"`: the oldest that must read it; None for text.

        Returns:
            MLIR text, or, for a version, a portable artifact.

        Raises:
            InvalidVersion: there is no such version.
            InvalidProgram: an operation has no form in StableHLO, or not yet in that version; the message says which version
                has one.
        """
        module = plain_module(self.bytecode)
        return str(module) if version is None else artifact_of(bindings.bytecode_of(module), version)

    def to_jax(self) -> Callable[..., Any]:
        """The program as a function for use inside of `jax.jit`, `jax.grad` and `jax.vmap`; see `pcp.to_jax`."""
        function: Callable[..., Any] = importlib.import_module(_JAX).to_jax(self)
        return function

    @staticmethod
    def from_artifact(artifact: bytes) -> "Program":
        """The program in a portable artifact whose bytes are trusted (their digest was checked).

        Raises:
            InvalidProgram: the bytes are no artifact that this version reads.
        """
        return Program.from_module(parse_artifact(artifact))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program, and what its arguments begin with, to one file with a checksum, which is whole or absent whatever
        happens meanwhile.

        Raises:
            InvalidProgram: an operation has no portable form.
            UnwritableFile: the file cannot be written.
        """
        header = {
            "digest": self.digest,
            "arguments": [[entry.name, str(entry.spec), entry.role.value] for entry in self.arguments],
            "results": [[entry.name, str(entry.spec)] for entry in self.results],
            "begins": {name: beginning.entry for name, beginning in self.begins.items()},
        }
        program_file.write(path, self.artifact(), header)

    @staticmethod
    def load(
        path: str | os.PathLike[str], *, main: str | None = None, shapes: Sequence[Any] | None = None
    ) -> "Program":
        """The program in a file: one that `save` wrote, or one of another tool; see `pcp.load`.

        Raises:
            NotAProgram, CorruptProgram, NewerProgram, InvalidProgram: it holds no sound program that this version reads.
            UnreadableFile: it cannot be read.
        """
        return load(path, main=main, shapes=shapes)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its portable artifact, which other versions read: equal in digest, without locations."""
        more = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "bytecode"}
        return _from_pickle, (type(self), self.artifact(), more)

    def __copy__(self) -> "Program":
        return self

    def __deepcopy__(self, memo: Any) -> "Program":
        return self

    def flatten_arguments(self, *arguments: Any) -> list[Any]:
        """The leaves of nested arguments, in the order of `arguments`.

        Raises:
            TreeMismatch: they are nested otherwise than the program's.
        """
        return flatten_like(self.argument_tree, arguments)

    def describing_state(self, kept: Mapping[str, float], groups: Mapping[str, str]) -> "Program":
        """The same program, saying of arguments, by name, how much of them is kept and of which group they are; see
        `Argument`."""
        entries = [
            replace(entry, kept=kept.get(entry.name, entry.kept), group=groups.get(entry.name, entry.group))
            for entry in self.arguments
        ]
        module = self.module()
        describe_signature(main_of(module), entries, self.results, self.argument_tree, self.result_tree)
        return Program.from_module(module)

    def donating(self, places: Sequence[int] | None = None) -> "Program":
        """The same program, given the memory of arguments for results of the same shape and element type; itself if it can be
        given none.

        Arguments:
            places: of the arguments whose memory may be given; None for all.
        """
        taken_from = range(len(self.arguments)) if places is None else places
        free = [place for place in taken_from if self.arguments[place].alias is None]
        taken = {entry.alias for entry in self.arguments}
        entries = list(self.arguments)
        for number, result in enumerate(self.results):
            fits = [place for place in free if entries[place].spec == result.spec]
            if fits and number not in taken:
                free.remove(fits[0])
                entries[fits[0]] = replace(entries[fits[0]], alias=number)
        if entries == list(self.arguments):
            return self
        module = self.module()
        describe_signature(main_of(module), entries, self.results, self.argument_tree, self.result_tree)
        return Program.from_module(module)

    def unflatten_results(self, leaves: Sequence[Any]) -> Any:
        """The nested result with `leaves` in place."""
        return self.result_tree.unflatten(leaves)

    def __str__(self) -> str:
        def listed(entries: Sequence[Argument | Result]) -> str:
            shown = [f"{entry.name}: {entry.spec}" for entry in entries[:6]]
            return ", ".join(shown + [f"... {len(entries) - 6} more"] * (len(entries) > 6))

        return f"Program {self.digest[:12]} ({listed(self.arguments)}) -> ({listed(self.results)})"

    def _repr_html_(self) -> str:
        return str(importlib.import_module(_PAGES).program_fragment(self))

    def __repr__(self) -> str:
        return str(self)


def load(
    path: str | os.PathLike[str], *, main: str | None = None, shapes: Sequence[Any] | None = None
) -> Program:
    """The Program in a file, whose sizes are numbers; see `pcp.load`."""
    program, header = program_file.read(path, main, shapes, Program.from_module)
    if not header.get("begins"):
        return program
    try:
        begins = beginnings_in(header["begins"], {entry.name: entry.spec for entry in program.arguments})
    except ValueError as error:
        raise CorruptProgram(f"{os.fspath(path)}: {error}; save the program again") from None
    return Program(program.bytecode, begins=begins)


def _from_pickle(kind: type[Program], artifact: bytes, more: dict[str, Any]) -> Program:
    return kind(Program.from_artifact(artifact).bytecode, **more)
