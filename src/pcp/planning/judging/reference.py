"""The reference: what results of a program are held against, and how sure it is.

Float64 is exact enough for every tolerance, but takes twice the memory of float32 and, on many devices, many times its time. So
where a program is large, and the tolerance 30 times what float32 misses or more, the reference is the program in float32 with
full-precision products, which for a float32 program is the plain path itself. How far that may be from exact results is
estimated by evaluating it a second time in other roundings (`pcp.planning.judging.rounding`), and added to every error.
"""

import functools
import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends import Executable, MemoryUse, OutOfMemory, Target
from pcp.backends.base import Buffer
from pcp.ir import DType, Program
from pcp.ops.elementwise import convert
from pcp.planning.instrument import flat
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.rounding import in_other_roundings
from pcp.tensor import Tensor
from pcp.tracing import call, spec, trace

log = logging.getLogger("pcp.planning.judging.reference")

FLOAT32_SERVES = 1e-3
"""The smallest tolerance for which float32 may be the reference."""
FLOAT64_BYTES = 1 << 28
"""Memory that a call in float64 may take whatever the plain path takes; PCP_FLOAT64_BYTES says otherwise."""


def float64_is_small(program: Program, use: MemoryUse | None = None) -> bool:
    """Whether evaluating a program in float64 takes little memory.

    Arguments:
        program: as it is written.
        use: memory of a call of it; None counts its arguments only.
    """
    specs = [*(entry.spec for entry in program.arguments), *(entry.spec for entry in program.results)]
    widths = [each.dtype.itemsize for each in specs if each.dtype.kind == "float"]
    limit = float(os.environ.get("PCP_FLOAT64_BYTES", FLOAT64_BYTES))
    peak = sum(entry.spec.bytes for entry in program.arguments) if use is None else use.peak
    return peak * 8 / min(widths, default=8) <= limit


class Reference:
    """Evaluates a program exactly enough for a tolerance.

    Arguments:
        exact: the program in float64.
        plain: the program as it is written.
        target: what the others are compiled for; what does not fit there runs on the processor.
    """

    def __init__(self, exact: Program, plain: Program, target: Target) -> None:
        self._exact, self._plain, self._target = exact, plain, target

    @functools.cached_property
    def float64(self) -> "Oracle":
        """The program in float64."""
        return self._oracle(self._exact)

    @functools.cached_property
    def float32(self) -> "Oracle | None":
        """The program in float32 with full-precision products; None where the plain path is that."""
        program = widened(self._plain, DType.f32)
        return None if program.digest == flat(self._plain).digest else self._oracle(program)

    @functools.cached_property
    def other_roundings(self) -> "Oracle":
        """The program in float32, rounded otherwise."""
        return self._oracle(in_other_roundings(self._plain))

    def surely_needed(self, judged_at: float | None) -> list["Oracle"]:
        """What will be evaluated to judge at a tolerance, as far as that is known before the plain path is compiled."""
        if (judged_at or 0.0) < FLOAT32_SERVES:
            return [self.float64]
        return [] if float64_is_small(self._plain) else [self.other_roundings]

    def _oracle(self, program: Program) -> "Oracle":
        return Oracle(program, self._plain, self._target)


class Oracle:
    """A program in other types, run where it fits.

    Arguments:
        program: in other types.
        narrow: the same as it was, whose arguments it takes.
        target: what the others are compiled for; what does not fit there runs on the processor.
    """

    def __init__(self, program: Program, narrow: Program, target: Target) -> None:
        self.program, self._narrow = program, narrow
        self._target = target.with_options(target.runner.quick_options(target))
        self._executable: Executable | None = None

    @property
    def memory(self) -> MemoryUse:
        """What a call takes; no argument gives its memory to a result, so they need not be copied for it."""
        return self._compiled().memory

    def run(self, arguments: Sequence[Any]) -> list[Buffer]:
        """The results for arguments of the program as it was, which stay as they are."""
        try:
            return self._run(arguments)
        except OutOfMemory as error:
            target = self._target
            host = next((each for each in target.runner.devices() if each.kind == "cpu"), None)
            if host is None or target.platform == "cpu":
                raise
            log.info(
                "results to compare with come from the processor, since %s has too little memory: %s",
                target.places,
                error,
            )
            there = target.on(host)
            self._target = there.with_options(target.runner.quick_options(there))
            self._executable = None
            return self._run(arguments)

    def _run(self, arguments: Sequence[Any]) -> list[Buffer]:
        executable = self._compiled()
        buffers = [
            each if self._target.holds(each) else self._target.place(np.asarray(each), entry.spec)
            for each, entry in zip(arguments, self._narrow.arguments, strict=True)
        ]
        results = executable.run(buffers)
        self._target.runner.wait(results)
        return results

    def _compiled(self) -> Executable:
        if self._executable is None:
            program = self._taking_narrow
            self._executable = self._target.suited(program).compile(program)
        return self._executable

    @functools.cached_property
    def _taking_narrow(self) -> Program:
        """The program with arguments as they were, so that they need not be there twice."""
        wide = [entry.spec.dtype for entry in self.program.arguments]

        def run(*arguments: Tensor) -> Any:
            leaves = [convert(argument, dtype) for argument, dtype in zip(arguments, wide, strict=True)]
            return call(self.program, *self.program.argument_tree.unflatten(leaves))

        return trace(run, *(spec(entry.spec.shape, entry.spec.dtype) for entry in self._narrow.arguments))
