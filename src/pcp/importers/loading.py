"""`pcp.load`: the Program in a file, and the symbolic program in one whose open sizes are given as symbols."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir import DType, Program, Role, program_file
from pcp.ir import program as program_of_file
from pcp.ir.bindings import bytecode_of, parse_module
from pcp.ir.program_file import LEFT_OPEN
from pcp.ir.specializing import UnknownShape, refine
from pcp.symbolic.computed import watch_sizes
from pcp.symbolic.expressions import Expression
from pcp.symbolic.numbers import numbers_in_text
from pcp.symbolic.program import SymbolicSpec
from pcp.tracing import OpenArgument, at_sizes


def load(
    path: str | os.PathLike[str],
    *,
    main: str | None = None,
    shapes: Sequence[Any] | None = None,
    constraints: Sequence[str] = (),
) -> Program:
    """The Program in a file: one that `save` wrote, MLIR text or bytecode, a portable StableHLO artifact of any version up to
    this one's, or what `jax.export` serialised.

    Arguments:
        path: the file.
        main: which function to take; needed where several are public and none is called `main`.
        shapes: where the sizes of arguments are open (`?`): for each argument its shape, or a `pcp.spec`, or None. A size may
            be a symbol, as in `("batch", 64)`; then the result is a `SymbolicProgram`.
        constraints: what holds of symbols, as in `pcp.trace`.

    Raises:
        NotAProgram: it holds something else.
        CorruptProgram: it is cut off or has changed since it was written.
        NewerProgram: a later version of PCP wrote it.
        NoSuchFunction: there is no function `main` names.
        UnknownShape: sizes are open and `shapes` does not give them, or constraints are given without symbols.
        InvalidProgram: it is MLIR, but no valid program.
        InvalidConstraint, BuiltDifferently: of symbols, as `pcp.trace`.
        UnreadableFile: it cannot be read.

    A file that PCP saved has a checksum. Any other binary form is read by a child process first, because damaged bytes crash
    MLIR's reader; that costs a third of a second.
    """
    opened = () if shapes is None else tuple(map(_opened, shapes))
    if not any(isinstance(entry, OpenArgument) for entry in opened):
        if constraints:
            raise UnknownShape(
                f"constraints were given ({', '.join(constraints)}) and no symbols; expected a symbol in `shapes`, as "
                "('batch', 64): give one, or leave the constraints out"
            )
        return program_of_file.load(path, main=main, shapes=shapes)
    bytecode, _ = program_file.read(path, main, LEFT_OPEN, bytecode_of)

    def make(closed: tuple[Any, ...]) -> Program:
        module = parse_module(bytecode)
        watch_sizes(module, open_shapes)
        refine(module, closed)
        return Program.from_module(module)

    open_shapes = [entry.spec.shape if isinstance(entry, OpenArgument) else None for entry in opened]
    numbers = numbers_in_text(str(parse_module(bytecode)))
    return at_sizes(opened, constraints, make, _mapped, numbers)


def _mapped(function: Callable[[Any], Any], entries: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(function, entries))


def _opened(shape: Any) -> Any:
    """What stands for a shape with symbols; anything else as it is."""
    if isinstance(shape, tuple | list) and any(isinstance(size, str | Expression) for size in shape):
        # The element type is the file's to say.
        return OpenArgument(SymbolicSpec(tuple(map(Expression.of, shape)), DType.f32), Role.input)
    return shape
