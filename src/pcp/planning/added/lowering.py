"""What a kernel from outside becomes for a problem, as a Program: made once, and kept beside the kernel.

From then on its python is not executed: what is measured, verified and run is what was kept.
"""

import hashlib
import json
from collections.abc import Collection

from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import InvalidProgram, ir
from pcp.ir.toolkit.attributes import string_of
from pcp.kernels.candidate import NATIVE, Candidate
from pcp.kernels.problems import Problem
from pcp.ops.record import Kind, kind_of
from pcp.planning.added.lowering_process import (
    SECONDS,
    KernelNotLowered,
    Starting,
    as_the_user,
    kept,
    lowered_by_child,
)
from pcp.planning.added.native_program import discard_build, native_program
from pcp.planning.measuring.hardware import versions


class KernelNeedsHandler(KernelNotLowered):
    """An added kernel that calls code which PCP does not have."""


def lowered(
    candidate: Candidate,
    digest: str,
    problem: Problem | None = None,
    start: Starting = as_the_user,
    seconds: float = SECONDS,
) -> Program:
    """What a kernel becomes for a problem.

    Arguments:
        candidate: in its folder; what python becomes is kept beside that folder.
        digest: of the content of the folder.
        problem: None takes the first that it is tried on.
        start: how the child is started that executes python.
        seconds: that the child may take.

    Raises:
        KernelNeedsHandler: it calls native code or python, by these names.
        KernelNotLowered: it cannot be lowered or built, or takes or returns something else than the problem.
    """
    problem = candidate.problems[0] if problem is None else problem
    key = digest, problem
    if key not in _known:
        try:
            _known[key] = _made(candidate, digest, problem, start, seconds)
        except KernelNotLowered as error:
            _known[key] = error
    outcome = _known[key]
    if isinstance(outcome, KernelNotLowered):
        raise outcome
    return outcome


_known: dict[tuple[str, Problem], Program | KernelNotLowered] = {}
"""By content and problem; what failed once is not tried again."""


def discard(candidate: Candidate, digest: str) -> None:
    """Forget what a kernel became that is not kept, and remove what was built of it."""
    for key in [key for key in _known if key[0] == digest]:
        del _known[key]
    discard_build(candidate, digest)


def check(candidate: Candidate, program: Program) -> None:
    """Look at every operation of a lowered kernel.

    Raises:
        KernelNeedsHandler: one runs something that is not in the program.
    """
    needed: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.custom_call":
            needed.extend({string_of(op.attributes["call_target_name"])} - set(candidate.calls))
        elif kind_of(op.name) is Kind.outside:
            needed.append(op.name)
        return ir.WalkResult.ADVANCE

    program.module().operation.walk(visit)
    if needed:
        raise KernelNeedsHandler(
            f"{candidate.name} calls {', '.join(dict.fromkeys(needed))}, which is not part of its program, and PCP has no "
            "handler for; plans take kernels of plain StableHLO only: write it without callbacks and native calls"
        )


def _made(candidate: Candidate, digest: str, problem: Problem, start: Starting, seconds: float) -> Program:
    if candidate.language in NATIVE:
        program = native_program(candidate, digest, start, seconds)
    else:
        try:
            program = Program.parse(_text(candidate, digest, problem, start, seconds))
        except (InvalidProgram, OSError, UnicodeDecodeError) as error:
            raise KernelNotLowered(f"{candidate.name} for {problem}: {error}") from None
        check(candidate, program)
    takes, returns = (tuple(each.spec for each in side) for side in (program.arguments, program.results))
    if (takes, returns) != (problem.specs, problem.results):
        raise KernelNotLowered(
            f"{candidate.name} takes {_listed(takes)} and returns {_listed(returns)} for {problem}; expected "
            f"{_listed(problem.specs)} and {_listed(problem.results)}"
        )
    return program


def _text(candidate: Candidate, digest: str, problem: Problem, start: Starting, seconds: float) -> str:
    if candidate.function is None:
        return (candidate.folder / candidate.file).read_text(encoding="utf-8")
    told = json.dumps(problem.attributes, sort_keys=True)
    parts = (digest, candidate.device, str(problem), told, versions())
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return kept(candidate, f"{name}.mlir", lambda: lowered_by_child(candidate, problem, start, seconds))


def _listed(specs: Collection[TensorSpec]) -> str:
    return ", ".join(map(str, specs)) or "nothing"
