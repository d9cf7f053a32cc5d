"""Program: an immutable, verified StableHLO module with one `main`, and the structure of its arguments and results.

A Program is a value. It holds bytecode, from which MLIR objects are made when they are asked for and never shared. Names,
roles and nesting of arguments are attributes of the module itself, so they travel wherever the program does.
"""

import enum
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, overload

from pcp.ir import bindings, digest
from pcp.ir.artifact import artifact_of, parse_artifact, plain_module
from pcp.ir.bindings import InvalidProgram, ir, string_of, symbol_name
from pcp.ir.resources import has_resources, inline_resources
from pcp.ir.tree import LEAF, Tree, flatten_like
from pcp.ir.tuples import flatten_tuples, has_tuples
from pcp.ir.types import DType, TensorSpec, checked_shape, dtype_from_mlir


class Role(enum.StrEnum):
    """What an argument is to its program: a `weight` is bound once, a `state` is donated and returned, an `input` changes."""

    weight = "weight"
    state = "state"
    input = "input"


@dataclass(frozen=True, slots=True)
class Argument:
    """One array that a program takes.

    Arguments:
        name: dotted.
        spec: shape and element type.
        role: what it is to the program.
        alias: index of the result that may reuse its memory: its successor.
        kept: the factor with which its value stands in its successor whatever the rest of the program computes. How wrong the
            successor is is judged by what is added to that: 1 for a parameter, to which an update is added.
        group: of state of a training step, what it is a part of, as `params` or `optimizer.first`; empty for all else. The
            gradients or updates of a group have a common scale.
    """

    name: str
    spec: TensorSpec
    role: Role
    alias: int | None = None
    kept: float = 1.0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One array that a program returns."""

    name: str
    spec: TensorSpec


@dataclass(frozen=True)
class Program:
    """A verified StableHLO module as canonical bytecode; equal and hashed by that.

    Make one with `pcp.trace`, `Program.parse` or `Program.from_module`, not by the constructor.
    """

    bytecode: bytes = field(repr=False)

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
        bindings.check_nesting(module)
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
        program.__dict__["_signature"] = _signature_of(main)
        return program

    def module(self) -> ir.Module:
        """A fresh MLIR module of this program, the caller's to change."""
        return bindings.parse_module(self.bytecode)

    @functools.cached_property
    def _signature(self) -> "_Signature":
        module = self.module()
        return _signature_of(main_of(module))

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
            InvalidProgram: an operation has no form in StableHLO, or not yet in that version.
        """
        module = plain_module(self.bytecode)
        return str(module) if version is None else artifact_of(bindings.bytecode_of(module), version)

    def to_jax(self) -> Callable[..., Any]:
        """The program as a function for use inside of `jax.jit`, `jax.grad` and `jax.vmap`; see `pcp.to_jax`."""
        function: Callable[..., Any] = EXPORTERS["jax"](self)
        return function

    @staticmethod
    def from_artifact(artifact: bytes) -> "Program":
        """The program in a portable artifact whose bytes are trusted (their digest was checked).

        Raises:
            InvalidProgram: the bytes are no artifact that this version reads.
        """
        return Program.from_module(parse_artifact(artifact))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to one file with a checksum; see `pcp.ir.program_file`.

        Raises:
            InvalidProgram: an operation has no portable form.
            OSError: the file cannot be written.
        """
        from pcp.ir import program_file

        program_file.save(self, path)

    @staticmethod
    def load(
        path: str | os.PathLike[str], *, main: str | None = None, shapes: Sequence[Any] | None = None
    ) -> "Program":
        """The program in a file: one that `save` wrote, or one of another tool; see `pcp.load`.

        Raises:
            NotAProgram, CorruptProgram, NewerProgram, InvalidProgram: it holds no sound program that this version reads.
            OSError: it cannot be read.
        """
        from pcp.ir import program_file

        return program_file.load(path, main=main, shapes=shapes)

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

    def unflatten_results(self, leaves: Sequence[Any]) -> Any:
        """The nested result with `leaves` in place."""
        return self.result_tree.unflatten(leaves)

    def __str__(self) -> str:
        def listed(entries: Sequence[Argument | Result]) -> str:
            shown = [f"{entry.name}: {entry.spec}" for entry in entries[:6]]
            return ", ".join(shown + [f"... {len(entries) - 6} more"] * (len(entries) > 6))

        return f"Program {self.digest[:12]} ({listed(self.arguments)}) -> ({listed(self.results)})"

    def __repr__(self) -> str:
        return str(self)


def _from_pickle(kind: type[Program], artifact: bytes, more: dict[str, Any]) -> Program:
    return kind(Program.from_artifact(artifact).bytecode, **more)


EXPORTERS: dict[str, Callable[[Program], Any]] = {}
"""By the name of a front end, what makes a program a function there; later layers enter themselves here."""


@dataclass(frozen=True, slots=True)
class _Signature:
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    argument_tree: Tree
    result_tree: Tree


def main_of(module: ir.Module) -> ir.Operation:
    """The function that a module is run by: `main`, or its only public function.

    Raises:
        InvalidProgram: there is none, or more than one and none called `main`, or one without a body.
    """
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    for function in functions:
        if not len(function.regions[0].blocks):
            raise InvalidProgram(
                f"the function {symbol_name(function)} of the program is declared and has no body; write the body, "
                "or leave it out"
            )
    public = [op for op in functions if _visibility(op) == "public"]
    named = [op for op in public if symbol_name(op) == "main"]
    candidates = named or public
    if len(candidates) != 1:
        names = ", ".join(symbol_name(op) for op in public) or "none"
        raise InvalidProgram(
            f"a program needs one public function, or one called main; this module has: {names}"
            + ("; choose one: pcp.load(path, main=...)" if len(public) > 1 else "")
        )
    return candidates[0]


@functools.cache
def spec_of(type_: ir.Type) -> TensorSpec:
    """The shape and element type of an MLIR tensor type.

    Raises:
        InvalidProgram: it is no tensor of static shape.
        InvalidShape: no address space holds it.
    """
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        raise InvalidProgram(
            f"{type_} is not a tensor of static shape; refine or export the program with static shapes"
        )
    return TensorSpec(checked_shape(tuple(type_.shape)), dtype_from_mlir(str(type_.element_type)))


@functools.lru_cache(maxsize=2**14)
def mlir_type(spec: TensorSpec) -> ir.Type:
    """The MLIR tensor type of a shape and element type.

    Raises:
        InvalidShape: no address space holds it.
    """
    shape = checked_shape(spec.shape)
    with bindings.context(), ir.Location.unknown():
        return ir.RankedTensorType.get(shape, element_type(spec.dtype))


@functools.cache
def element_type(dtype: DType) -> ir.Type:
    """The MLIR type of one element."""
    return ir.Type.parse(dtype.mlir, bindings.context())


def describe_signature(
    main: ir.Operation,
    arguments: Sequence[Argument],
    results: Sequence[Result],
    argument_tree: Tree,
    result_tree: Tree,
) -> None:
    """Write names, roles, aliases and nesting into the attributes of `main`, in place."""
    with bindings.context(), ir.Location.unknown():
        text, number = ir.StringAttr.get, ir.IntegerAttr.get
        i32, f64 = ir.IntegerType.get_signless(32), ir.F64Type.get()
        facts: list[dict[str, ir.Attribute]] = []
        for entry in arguments:
            facts.append({"pcp.name": text(entry.name), "pcp.role": text(entry.role)})
            if entry.alias is not None:
                facts[-1]["tf.aliasing_output"] = number(i32, entry.alias)
            if entry.kept != 1.0:
                facts[-1]["pcp.kept"] = ir.FloatAttr.get(f64, entry.kept)
            if entry.group:
                facts[-1]["pcp.group"] = text(entry.group)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in facts])
        main.attributes["res_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({"pcp.name": text(entry.name)}) for entry in results]
        )
        main.attributes["pcp.arguments"] = text(argument_tree.to_json())
        main.attributes["pcp.results"] = text(result_tree.to_json())


def _signature_of(main: ir.Operation) -> _Signature:
    type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    argument_facts = _facts(main, "arg_attrs", len(type_.inputs))
    result_facts = _facts(main, "res_attrs", len(type_.results))
    arguments = tuple(
        Argument(
            str(facts.get("pcp.name", i)),
            spec_of(t),
            _role(facts, i),
            _alias(facts),
            _kept(facts, i),
            str(facts.get("pcp.group", "")),
        )
        for i, (t, facts) in enumerate(zip(type_.inputs, argument_facts, strict=True))
    )
    results = tuple(
        Result(str(facts.get("pcp.name", i)), spec_of(t))
        for i, (t, facts) in enumerate(zip(type_.results, result_facts, strict=True))
    )
    argument_tree = _tree(main, "pcp.arguments") or Tree("tuple", (), (LEAF,) * len(arguments))
    result_tree = _tree(main, "pcp.results") or (
        LEAF if len(results) == 1 else Tree("tuple", (), (LEAF,) * len(results))
    )
    if (argument_tree.leaf_count, result_tree.leaf_count) != (len(arguments), len(results)):
        raise InvalidProgram("the nesting written in the program does not fit its arguments and results")
    _check_aliases(arguments, results)
    return _Signature(arguments, results, argument_tree, result_tree)


def _facts(main: ir.Operation, name: str, count: int) -> list[dict[str, Any]]:
    if name not in main.attributes:
        return [{}] * count
    return [
        {entries[i].name: getattr(entries[i].attr, "value", None) for i in range(len(entries))}
        for entries in map(ir.DictAttr, ir.ArrayAttr(main.attributes[name]))
    ]


def _role(facts: dict[str, Any], index: int) -> Role:
    given = facts.get("pcp.role", "input")
    if given not in Role.__members__:
        raise InvalidProgram(f"argument {index} has the role {given!r}; expected one of {', '.join(Role)}")
    return Role(given)


def _kept(facts: dict[str, Any], index: int) -> float:
    given = facts.get("pcp.kept", 1.0)
    if not isinstance(given, float) or not math.isfinite(given):
        raise InvalidProgram(f"argument {index} is kept with the factor {given!r}; expected a finite number")
    return given


def _check_aliases(arguments: Sequence[Argument], results: Sequence[Result]) -> None:
    donors: dict[int, str] = {}
    for entry in arguments:
        if entry.alias is None:
            continue
        if not 0 <= entry.alias < len(results):
            raise InvalidProgram(
                f"argument {entry.name} is donated to result {entry.alias}, but there are {len(results)} results"
            )
        result = results[entry.alias]
        if result.spec != entry.spec:
            raise InvalidProgram(
                f"argument {entry.name} of {entry.spec} is donated to result {entry.alias} of {result.spec}; "
                "only equal types share memory"
            )
        if donors.setdefault(entry.alias, entry.name) != entry.name:
            raise InvalidProgram(
                f"arguments {donors[entry.alias]} and {entry.name} are both donated to result {entry.alias}"
            )


def _alias(facts: dict[str, Any]) -> int | None:
    alias = facts.get("tf.aliasing_output")
    if alias is not None and not isinstance(alias, int):
        raise InvalidProgram(f"an argument is donated to result {alias!r}; expected the number of a result")
    return alias


def _tree(main: ir.Operation, name: str) -> Tree | None:
    if name not in main.attributes:
        return None
    try:
        return Tree.from_json(string_of(main.attributes[name]))
    except ValueError:
        raise InvalidProgram(f"the attribute {name} of the program is not a valid structure") from None


def _visibility(op: ir.Operation) -> str:
    return string_of(op.attributes["sym_visibility"]) if "sym_visibility" in op.attributes else "public"
