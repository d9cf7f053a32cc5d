"""SymbolicProgram: one program for all sizes, as its Programs at a few of them and the expressions that lead to all others."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.errors import PCPError
from pcp.ir import DType, InvalidProgram, Program, Role, Tree
from pcp.ir.bindings import parse_module
from pcp.ir.program import Runs
from pcp.symbolic.agreement import agree
from pcp.symbolic.checking import Evidence, Source, check_at, compared_at_many
from pcp.symbolic.constraints import Constraint, SizesRefused, Space, replaced
from pcp.symbolic.expressions import Expression, InvalidSize, listed
from pcp.symbolic.file import LARGEST, packed, unpacked, write
from pcp.symbolic.fitting import fitted
from pcp.symbolic.sampling import samples as sampled
from pcp.symbolic.solving import solved
from pcp.symbolic.template import BuiltDifferently, Template, unified

_KEPT = 32
"""Programs at sizes that were asked for last."""
_ATTEMPTS = 3
COST = 4
"""How many times as long as tracing a transformation takes, about."""
_LOCK = threading.Lock()
_PAGES = "pcp.planning.pages"
"""A later layer, imported by notebooks."""
_LOCATION = re.compile(r" loc\((?:#loc\d*|unknown)\)")


@dataclass(frozen=True, slots=True, repr=False)
class SymbolicSpec:
    """The shape and element type of a tensor whose sizes are expressions of symbols."""

    shape: tuple[Expression, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class SymbolicArgument:
    """One array that a symbolic program takes: its name, spec and role."""

    name: str
    spec: SymbolicSpec
    role: Role


@dataclass(frozen=True, slots=True)
class SymbolicResult:
    """One array that a symbolic program returns."""

    name: str
    spec: SymbolicSpec


class SizesNeeded(PCPError, AttributeError):
    """Something that a Program has at a size, asked of a symbolic program."""


@dataclass(frozen=True)
class SymbolicProgram(Runs):
    """A program whose sizes are symbols. Make one with `pcp.trace` and `pcp.spec(("batch", 64), "f32")`.

    It is a value, as a Program is: its Programs at a few sizes, which have the same operations in the same order and differ in
    numbers alone. Each of these numbers is an expression of the sizes; so the Program at any other sizes follows, without
    the function that was traced.

    Arguments:
        space: the symbols and the constraints on them.
        programs: for a few sizes of the symbols, in their order, the Program there.
        evidence: at which sizes it was compared with what it was made from.
        hints: quotients and remainders that are in its sizes.
        source: what it was made from, as long as it lives in this process: Programs at further sizes are compared with it.
    """

    space: Space
    programs: tuple[tuple[tuple[int, ...], Program], ...]
    evidence: Evidence = dataclasses.field(default=Evidence(), compare=False, repr=False)
    hints: tuple[Expression, ...] = dataclasses.field(default=(), compare=False, repr=False)
    source: Source | None = dataclasses.field(default=None, compare=False, repr=False)

    @staticmethod
    def build(
        space: Space,
        make: Callable[[dict[str, int]], Program],
        taken: Iterable[int] = (),
        asked: Callable[[], Iterable[Constraint]] = tuple,
        source: Callable[[], Source] | None = None,
        examples: Sequence[dict[str, int]] = (),
    ) -> "SymbolicProgram":
        """The symbolic program of what `make` makes for sizes.

        Arguments:
            space: the sizes that are possible.
            make: called for a few sizes.
            taken: other numbers that are sizes in the program, which sizes that are tried had better not be.
            asked: called afterwards for constraints that `make` came upon.
            source: asked afterwards what Programs at further sizes are compared with; None: what `make` makes.
            examples: the few sizes that are tried first.

        Raises:
            InvalidConstraint: too few sizes satisfy the constraints.
            BuiltDifferently: the programs differ in more than numbers that follow from the sizes.
        """
        error: BuiltDifferently | None = None
        for attempt in range(_ATTEMPTS):  # sizes may by chance equal other numbers of the program
            chosen = (not attempt and examples) or sampled(space, taken, attempt)
            programs = tuple((tuple(sizes.values()), make(sizes)) for sizes in chosen)
            constraints = asked()
            origin = Source(make, cost=COST) if source is None else source()
            whole = SymbolicProgram(space.also(constraints), programs, hints=origin.hints)
            try:
                _ = whole.template
            except BuiltDifferently as mistake:
                error = error or origin.explained(mistake)
                if any(entry.sign not in ("==", "!=") for entry in origin.mixed):
                    break  # at other sizes, too
                continue
            return whole._compared(origin)
        assert error is not None
        raise error

    def _compared(self, source: Source) -> "SymbolicProgram":
        """This program, with the sizes at which it agrees with its source."""
        known: OrderedDict[tuple[int, ...], Program] = OrderedDict()

        def same(sizes: dict[str, int]) -> bool:
            expected = source.make(sizes)
            program = self._following(self.space.checked(sizes))
            agrees = agree(program, expected)
            if agrees and len(known) < _KEPT:
                known[tuple(sizes.values())] = program
            return agrees

        numbers = self.template.numbers
        lines = sum(piece.count("\n") for piece in self.template.pieces)
        evidence = compared_at_many(self.space, self._samples[0], source, numbers, lines, same)
        checked = dataclasses.replace(self, evidence=evidence, source=source)
        checked.__dict__.update(template=self.template, _samples=self._samples, _made=known)
        return checked

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the sizes, in the order in which they stand in the arguments."""
        return self.space.symbols

    @property
    def constraints(self) -> tuple[str, ...]:
        """What holds of the sizes, each as a text; every size is 1 or more."""
        return tuple(map(str, self.space.constraints))

    @functools.cached_property
    def _samples(self) -> list[dict[str, int]]:
        return [dict(zip(self.symbols, sizes, strict=True)) for sizes, _ in self.programs]

    @functools.cached_property
    def template(self) -> Template:
        """The text with expressions in the place of sizes.

        Raises:
            BuiltDifferently: the programs differ in more than numbers that follow from the sizes.
        """

        def texts(located: bool) -> list[str]:
            modules = (program.module() for _, program in self.programs)
            return [str(module.operation.get_asm(enable_debug_info=located)) for module in modules]

        with contextlib.suppress(BuiltDifferently):  # lines of the source may differ where operations do not
            return unified(texts(True), self._samples, self.hints)
        return unified(texts(False), self._samples, self.hints)

    def at(self, **sizes: int) -> Any:
        """The Program at these sizes; with sizes for some of the symbols, the symbolic program of the others.

        Raises:
            SizesRefused: a size is unknown, no integer from 1 on, or a constraint does not hold, or the program is not valid
                there.
        """
        if sizes and set(sizes) < set(self.symbols):
            space = self.space.without(sizes)
            source = self.derived(lambda others: self._at({**sizes, **others}), sizes)
            return SymbolicProgram.build(space, source.make, source=lambda: source)
        return self._at(sizes)

    def _at(self, wanted: Mapping[str, int]) -> Program:
        sizes = self.space.checked(wanted)
        key = tuple(sizes.values())
        for known, program in self.programs:
            if known == key:
                return program
        with _LOCK:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        program = dataclasses.replace(self._following(sizes), begins=self.programs[0][1].begins)
        if self.source is not None:
            check_at(sizes, program, self.source, self._samples[0])
        else:
            self.evidence.check(sizes)
        with _LOCK:
            self._made[key] = program
            self._asked[key] = None
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return program

    def _following(self, sizes: Mapping[str, int]) -> Program:
        """What follows for sizes from the Programs at a few."""
        example = self.programs[0][1]
        try:
            module = parse_module(self.template.text(sizes))
            program = Program.from_module(module)
        except (InvalidProgram, InvalidSize) as error:
            raise SizesRefused(
                f"the sizes ({listed(sizes)}) were given, and the program is not valid there; expected others: constrain the "
                f"symbols when it is traced, as by constraints=['length <= 1024']. What is wrong: {error}"
            ) from None
        more = {f.name: getattr(example, f.name) for f in dataclasses.fields(example) if f.name != "bytecode"}
        signature = program._signature
        program = type(example)(program.bytecode, **more)
        program.__dict__["_signature"] = signature
        return program

    @functools.cached_property
    def _made(self) -> OrderedDict[tuple[int, ...], Program]:
        return OrderedDict()

    @functools.cached_property
    def _asked(self) -> dict[tuple[int, ...], None]:
        return {}

    def _known(self) -> Evidence:
        """The evidence, with the sizes of its Programs and those for which `at` was called."""
        sizes = (*(sizes for sizes, _ in self.programs), *self.evidence.sizes, *self._asked)
        return dataclasses.replace(self.evidence, sizes=tuple(dict.fromkeys(sizes)))

    def mapped(self, change: Callable[[Program], Program]) -> "SymbolicProgram":
        """The symbolic program of what `change` makes of the Program at every size: a gradient, a training step.

        Raises:
            BuiltDifferently: what it makes has another form for other sizes.
        """
        known, source = self._known(), self.derived(lambda sizes: change(self._at(sizes)))
        built = SymbolicProgram.build(
            self.space, source.make, self.numbers, source=lambda: source, examples=self._samples
        )
        return dataclasses.replace(built, evidence=dataclasses.replace(built.evidence, sizes=known.sizes))

    def derived(
        self, make: Callable[[dict[str, int]], Program], sizes: Mapping[str, int] | None = None
    ) -> Source:
        """The source of what `make` makes from it, where some symbols have sizes."""
        numbers = {name: Expression.of(size) for name, size in (sizes or {}).items()}
        hints = tuple(replaced(hint, numbers) for hint in self.hints)
        return Source(make, cost=COST, unseen=self.evidence.unseen, hints=hints)

    @functools.cached_property
    def numbers(self) -> frozenset[int]:
        """Sizes of the arguments that do not depend on the symbols."""
        return frozenset(
            number
            for entry in self.arguments
            for size in entry.spec.shape
            if (number := size.number) is not None
        )

    @functools.cached_property
    def arguments(self) -> tuple[SymbolicArgument, ...]:
        """Every array the program takes, in order."""
        rows = zip(*(program.arguments for _, program in self.programs), strict=True)
        return tuple(SymbolicArgument(row[0].name, self._spec(row), row[0].role) for row in rows)

    @functools.cached_property
    def results(self) -> tuple[SymbolicResult, ...]:
        """Every array the program returns, in order."""
        rows = zip(*(program.results for _, program in self.programs), strict=True)
        return tuple(SymbolicResult(row[0].name, self._spec(row)) for row in rows)

    def _spec(self, row: Sequence[Any]) -> SymbolicSpec:
        shapes = zip(*(entry.spec.shape for entry in row), strict=True)
        sizes = [fitted(values, self._samples, self.hints) for values in shapes]
        return SymbolicSpec(tuple(size for size in sizes if size is not None), row[0].spec.dtype)

    @property
    def argument_tree(self) -> Tree:
        """The nesting of the arguments."""
        return self.programs[0][1].argument_tree

    @property
    def result_tree(self) -> Tree:
        """The nesting of the result."""
        return self.programs[0][1].result_tree

    def sizes_of(self, *arguments: Any) -> dict[str, int]:
        """The sizes that the shapes of arguments, nested as the program's, say.

        Raises:
            TreeMismatch: they are nested otherwise.
            SizesRefused: shapes disagree, or do not say what a symbol is.
        """
        leaves = self.programs[0][1].flatten_arguments(*arguments)
        shapes = [tuple(getattr(leaf, "shape", ())) for leaf in leaves]
        return solved(
            self.space, [(entry.name, entry.spec.shape, str(entry.spec)) for entry in self.arguments], shapes
        )

    @functools.cached_property
    def digest(self) -> str:
        """The structural digest: equal for symbolic programs with the same dataflow at every size and the same constraints;
        symbols may have other names."""
        numbered = {name: Expression.symbol(f"s{i}") for i, name in enumerate(self.symbols)}
        sha256 = hashlib.sha256(b"symbolic")
        for entry in sorted(str(c.renamed(numbered)) for c in self.space.constraints):
            sha256.update(f"{len(entry)} {entry}".encode())
        for sizes in sampled(self.space):
            sha256.update(f"{tuple(sizes.values())} {self._at(sizes).digest}".encode())
        return sha256.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file with a checksum; `pcp.load` reads it.

        Raises:
            InvalidProgram: an operation has no portable form.
            UnwritableFile: the file cannot be written.
        """
        write(path, self.space, self.programs, self._known(), self.hints)

    def artifact(self, *, named: bool = False) -> bytes:
        """The program as bytes that travel, with a checksum: the portable artifacts of its Programs, and the constraints.

        Raises:
            InvalidProgram: an operation has no portable form.
        """
        return packed(self.space, self.programs, self._known(), self.hints, named=named)

    @staticmethod
    def from_artifact(
        artifact: bytes, name: str = "the artifact", largest: int = LARGEST
    ) -> "SymbolicProgram":
        """The symbolic program in what `artifact` made, whose bytes are trusted beyond their checksum, as a Program's are.

        Arguments:
            name: for messages.
            largest: bytes that its Programs may take together, unpacked.

        Raises:
            CorruptProgram, NewerProgram: the bytes have changed, or a later version wrote them.
            BuiltDifferently, InvalidProgram: they hold programs that are not those of one symbolic program.
        """
        space, artifacts, evidence, hints = unpacked(artifact, name, largest)
        programs = tuple((sizes, Program.from_artifact(raw)) for sizes, raw in artifacts)
        program = SymbolicProgram(space, programs, evidence, hints)
        _ = program.template
        return program

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolicProgram, (self.space, self.programs, self._known(), self.hints)

    @property
    def text(self) -> str:
        """The program as MLIR text with expressions in the place of sizes, as `tensor<{batch}x64xf32>`."""
        first, *rest = self.template.pieces
        pairs = zip(self.template.holes, rest, strict=True)
        lines = "".join([first, *(f"{{{hole}}}{piece}" for hole, piece in pairs)]).split("\n")
        return _LOCATION.sub("", "\n".join(line for line in lines if not line.startswith("#loc")))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and (hasattr(Program, name) or name in Program.__dataclass_fields__):
            raise SizesNeeded(
                f"{name} was asked of a symbolic program; expected a Program, which has it at a size: program.at("
                f"{listed(dict.fromkeys(self.symbols, '...'))}).{name}"
            )
        raise AttributeError(f"a SymbolicProgram has no {name}")

    def __str__(self) -> str:
        def shown(entries: Sequence[SymbolicArgument | SymbolicResult]) -> str:
            texts = [f"{entry.name}: {entry.spec}" for entry in entries[:6]]
            return ", ".join(texts + [f"... {len(entries) - 6} more"] * (len(entries) > 6))

        where = f" where {', '.join(self.constraints)}" if self.constraints else ""
        return f"SymbolicProgram ({shown(self.arguments)}) -> ({shown(self.results)}){where}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(importlib.import_module(_PAGES).symbolic_fragment(self))
