"""A kernel computes a site in the place of its operations, by the key of the site."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcp.ir import Program
from pcp.kernels import Kernel, KernelUnavailable, apply_kernels, current_name, kernel_named
from pcp.kernels.features import KINDS as DEVICES
from pcp.planning.paths.checks import PathMismatch, is_digest, is_integer, is_list_of, refused
from pcp.planning.paths.move import Kind, Move, Moves, Stage
from pcp.rewrite.row import Effect, strongest

_LIBRARY = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel as it was when it was chosen.

    Arguments:
        kernel: its name.
        version: its version when it was chosen.
        library: digest of the build of the native library that it called; empty where it calls none, or any build will do.
    """

    kernel: str
    version: int
    library: str = ""

    @staticmethod
    def of(kernel: Kernel) -> "Choice":
        """A kernel as it is here."""
        return Choice(kernel.name, kernel.version, kernel.artifact.digest)


def _applied(program: Program, moves: Moves) -> Program:
    return apply_kernels(program, {move.at: kernel_named(move.value.kernel) for move in moves})


def _changes(moves: Moves) -> Effect:
    return strongest(kernel_named(move.value.kernel).effect for move in moves)


def _written(moves: Moves) -> Any:
    choices = [(move.at, move.value) for move in moves]
    return [
        [site, choice.kernel, choice.version, *([choice.library] if choice.library else [])]
        for site, choice in choices
    ]


def _read(value: Any) -> Iterator[Move]:
    if not is_list_of(value, _is_choice):
        expected = "a site of 64 hexadecimal digits, a kernel and its version, and of a native library the digest, each"
        raise refused("choices", value, expected)
    return (KERNEL.move(Choice(current_name(name), *more), site) for site, name, *more in value)


def _is_choice(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) in (3, 4)
        and is_digest(entry[0])
        and isinstance(entry[1], str)
        and is_integer(entry[2])
        and all(isinstance(library, str) and _LIBRARY.fullmatch(library) for library in entry[3:])
    )


def kernels_in(moves: Moves) -> dict[str, Kernel]:
    """The kernels by the keys of their sites, as they are here.

    Raises:
        UnknownKernel: one is not registered here.
        KernelUnavailable: this machine lacks what one needs, as a native library.
        PathMismatch: one has another version here than when it was chosen, or calls another build of a native library.
    """
    kernels = {move.at: kernel_named(move.value.kernel) for move in moves}
    for move in moves:
        _check(move.at, move.value, kernels[move.at])
    return kernels


def _check(site: str, choice: Choice, kernel: Kernel) -> None:
    if kernel.version != choice.version:
        raise PathMismatch(
            f"the path was made with version {choice.version} of kernel {choice.kernel}, which is {kernel.version} here; "
            "plan again, or install the version of PCP that made the path"
        )
    if not kernel.needs:
        return
    lacks = [kernel.lacks(kind) for kind in sorted(DEVICES) if kernel.is_for(kind)]
    if all(lacks):
        raise KernelUnavailable(
            f"the path has kernel {kernel.name} compute site {site[:12]}, which cannot be had here: {lacks[0]}; "
            "plan again to do without it"
        )
    here = kernel.artifact.digest
    if choice.library and choice.library != here:
        raise PathMismatch(
            f"the path was made with build {choice.library} of the native library of kernel {kernel.name}, and here is {here}: "
            'its results may differ in their last bits; plan again, or follow it anyway as path.made_on("", "")'
        )


KERNEL = Kind(
    "kernel", "choices", Stage.sites, written=_written, read=_read, applied=_applied, changes=_changes
)
