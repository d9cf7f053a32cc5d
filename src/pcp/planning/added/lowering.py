"""An added kernel for one problem, as a Program: StableHLO text, made in a disposable child once and kept beside the kernel.

From then on the kernel's python is not executed: what is measured and judged at a site is this text, and what runs is the same.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import InvalidProgram, ir
from pcp.ir.program_file import write_atomically
from pcp.ir.toolkit.attributes import string_of
from pcp.kernels.candidate import Candidate
from pcp.kernels.problems import Problem
from pcp.ops.record import Kind, kind_of
from pcp.planning.added.lowering_process import KernelNotLowered as KernelNotLowered
from pcp.planning.added.lowering_process import lowered_by_child
from pcp.planning.added.store import Added
from pcp.planning.measuring.hardware import versions


class KernelNeedsHandler(KernelNotLowered):
    """An added kernel that calls code which PCP does not have."""


def lowered(added: Added, problem: Problem, attributes: Mapping[str, Any]) -> Program:
    """The kernel for a problem.

    Raises:
        KernelNeedsHandler: it calls native code or python, by these names.
        KernelNotLowered: it cannot be lowered, or returns something else than the problem's result.
    """
    return _lowered(added, problem, json.dumps(attributes, sort_keys=True))


def lowered_once(candidate: Candidate, digest: str) -> None:
    """See whether a kernel becomes a program that a plan can hold, before it is verified.

    Raises:
        KernelNeedsHandler, KernelNotLowered: as `lowered`.
    """
    problem = candidate.problems[0]
    lowered(Added(digest, candidate, {}), problem, problem.attributes)


class _Lowered:
    """Programs by kernel and problem; a kernel holds a mapping, so it is known by its digest."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Program | KernelNotLowered] = {}

    def __call__(self, added: Added, problem: Problem, attributes: str) -> Program:
        key = (added.digest, problem, attributes)
        if key not in self.known:
            try:
                self.known[key] = _made(added, problem, attributes)
            except KernelNotLowered as error:
                self.known[key] = error
        found = self.known[key]
        if isinstance(found, KernelNotLowered):
            raise found
        return found


_lowered = _Lowered()


def _made(added: Added, problem: Problem, attributes: str) -> Program:
    candidate = added.candidate
    assert isinstance(candidate, Candidate)
    if candidate.function is None:
        text = (candidate.folder / candidate.file).read_text(encoding="utf-8")
    else:
        parts = (added.digest, str(problem), attributes, versions())
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        file = candidate.folder.parent / "lowered" / f"{name}.mlir"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError:
            text = _asked(added, problem, attributes)
            with contextlib.suppress(OSError):  # it is made again
                file.parent.mkdir(exist_ok=True)
                write_atomically(file, text.encode())
    try:
        program = Program.parse(text)
    except InvalidProgram as error:
        raise KernelNotLowered(f"{added.name} for {problem}: {error}") from None
    check(added.name, program)
    _check_signature(added, problem, program)
    return program


def check(name: str, program: Program, own: Collection[str] = ()) -> None:
    """Look at every operation of a lowered kernel.

    Arguments:
        own: what it may call.

    Raises:
        KernelNeedsHandler: one runs something that is not in the program.
    """
    needed: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.custom_call":
            needed.extend({string_of(op.attributes["call_target_name"])} - set(own))
        elif kind_of(op.name) is Kind.outside:
            needed.append(op.name)
        return ir.WalkResult.ADVANCE

    program.module().operation.walk(visit)
    if needed:
        raise KernelNeedsHandler(
            f"{name} calls {', '.join(dict.fromkeys(needed))}, which is not part of its program, and PCP has no handler for; "
            "plans take kernels of plain StableHLO only: write it without callbacks and native calls"
        )


def _check_signature(added: Added, problem: Problem, program: Program) -> None:
    [result] = _expected(problem)
    takes = [entry.spec for entry in program.arguments]
    returns = [entry.spec for entry in program.results]
    if takes != list(problem.specs) or returns != [result]:
        raise KernelNotLowered(
            f"{added.name} takes {', '.join(map(str, takes))} and returns {', '.join(map(str, returns))} for {problem}; "
            f"expected {', '.join(map(str, problem.specs))} and {result}"
        )


@functools.lru_cache(maxsize=64)
def _expected(problem: Problem) -> list[TensorSpec]:
    return [entry.spec for entry in problem.reference().results]


def _asked(added: Added, problem: Problem, attributes: str) -> str:
    """The text that a child makes."""
    candidate = added.candidate
    assert isinstance(candidate, Candidate)
    assert candidate.function is not None
    file = candidate.folder / candidate.file
    return lowered_by_child(added.name, problem, file, candidate.function, _told(attributes), problem.specs)


def _told(attributes: str) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in json.loads(attributes).items()}


def _tuples(value: Any) -> Any:
    """A value that JSON made lists of."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
