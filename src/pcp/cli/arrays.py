"""Arrays of a command's arguments and results in `.npz` files, by name or by position."""

import argparse
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import Argument, Program
from pcp.ir.program import load
from pcp.ir.program_file import write_atomically, writing
from pcp.symbolic.constraints import SizesRefused
from pcp.symbolic.program import SymbolicArgument, SymbolicProgram


class WrongInputs(PCPError):
    """Arrays that are missing, or that stand for no argument of the program."""


class InvalidSizes(PCPError):
    """Sizes of a command line that are no list of names and numbers."""


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Describe the argument by which a symbolic program gets its sizes."""
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a symbol of the program, such as length=512; may be given several times, or batch=8,length=512",
    )


def sizes_in(texts: Sequence[str]) -> dict[str, int]:
    """The sizes in texts as `batch=8,length=512`.

    Raises:
        InvalidSizes: one is no name and number.
    """
    sizes = {}
    for part in (part for text in texts for part in text.split(",")):
        name, _, size = part.partition("=")
        if not name.strip().isidentifier() or not size.strip().isdecimal():
            raise InvalidSizes(f"--at {part!r} is no size; expected a name and a number, as --at length=512")
        sizes[name.strip()] = int(size)
    return sizes


def read_at(path: Path, sizes: Sequence[str]) -> Program:
    """The program in a file, and of a symbolic one that at the sizes that are given.

    Raises:
        InvalidSizes, SizesRefused: a text is no size, a size is missing, or the sizes do not fit.
        NotSymbolic: sizes are given for a program that has no symbols.
        UnreadableFile, NotAProgram, CorruptProgram, NewerProgram, InvalidProgram: as `pcp.load`.
    """
    program = load(path)
    closed: Program | SymbolicProgram = program.at(**sizes_in(sizes)) if sizes else program
    if isinstance(closed, SymbolicProgram):
        missing = ",".join(f"{name}=..." for name in closed.symbols)
        raise SizesRefused(
            f"{path} is a symbolic program whose sizes {', '.join(closed.symbols)} are open; expected a number for each: "
            f"give --at {missing}"
        )
    return closed


def arguments_from(
    program: Program | SymbolicProgram, arrays: Mapping[str, np.ndarray[Any, Any]], path: Path
) -> tuple[Any, ...]:
    """The arguments of a program, nested, from arrays whose keys are their names or positions (`0`, `1`, ...).

    Raises:
        WrongInputs: some are missing, or there are others; the message names them.
    """
    values, missing = [], []
    left = dict(arrays)
    entries: Sequence[Argument | SymbolicArgument] = program.arguments
    for position, entry in enumerate(entries):
        key = next((key for key in (entry.name, str(position), f"arr_{position}") if key in left), None)
        if key is None:
            missing.append(f"{entry.name} {entry.spec}" if entry.name else f"{position} {entry.spec}")
        else:
            values.append(_typed(entry, left.pop(key)))
    if missing:
        raise WrongInputs(
            f"{path} lacks {len(missing)} of the program's {len(program.arguments)} arguments: {', '.join(missing[:8])}"
            f"{' and more' if len(missing) > 8 else ''}; it has: {', '.join(arrays) or 'nothing'}"
        )
    if left:
        names = ", ".join(entry.name for entry in program.arguments[:16])
        raise WrongInputs(
            f"{path} has arrays that are not arguments of the program: {', '.join(left)}; the program takes: {names}"
        )
    nested: tuple[Any, ...] = program.argument_tree.unflatten(values)
    return nested


def write_results(path: Path, program: Program, results: Sequence[Any]) -> list[str]:
    """Write flat results to an `.npz` file under their names, or positions where they have none; returns the keys.

    Raises:
        UnwritableFile: it cannot be written; an older file of that name is as it was.
    """
    keys = [entry.name or str(position) for position, entry in enumerate(program.results)]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # np.savez refuses some names, like `file`
        for key, value in zip(keys, results, strict=True):
            with archive.open(f"{key}.npy", "w") as entry:
                np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)
    with writing(path):
        write_atomically(path, buffer.getvalue())
    return keys


def _typed(entry: Argument | SymbolicArgument, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, read as bf16 where NumPy's files know only two nameless bytes."""
    wanted = entry.spec.dtype.numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)
    return array
