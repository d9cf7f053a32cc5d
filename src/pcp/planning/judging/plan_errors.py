"""How wrong the results of a plan are on given arguments: every judged tensor against float64, beside the plain path's."""

from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.planning.compiled import Compiled, compiled
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import Judge
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.planning.judging.tolerance import ResultError


def errors_on(plan: Compiled, arguments: tuple[Any, ...], tolerance: float | None) -> list[ResultError]:
    """The error of every result of a plan, and of the plain path, on arguments that stay as they are."""
    program = plan.program
    flat = [np.array(leaf) for leaf in program.flatten_arguments(*plan.bound, *arguments)]
    wide = widened(program)
    target = plan.target.with_options({})

    def results(source: Program, arrays: list[np.ndarray[Any, Any]]) -> list[Any]:
        # NumPy arrays are copied to the device, so what is donated there is not theirs.
        return flatten(compiled(source, target).call(*source.argument_tree.unflatten(arrays)))[0]

    exact = results(wide, [np.array(a) for a in widened_arrays(program.arguments, flat)])
    plain = results(program, flat)
    judge = Judge(program, flat, exact, plain, Comparison(target), tolerance)
    nested = program.argument_tree.unflatten(flat)[len(plan.bound) :]
    return judge.errors(flatten(plan.call(*nested))[0])
