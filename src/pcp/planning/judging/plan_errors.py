"""How wrong the results of a plan are on given arguments: every judged tensor against float64, beside the plain path's."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import Judge
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.planning.judging.tolerance import ResultError

if TYPE_CHECKING:
    from pcp.planning.plan import Plan


def errors_on(plan: "Plan", arguments: tuple[Any, ...]) -> list[ResultError]:
    """The error of every result of a plan, and of the plain path, on arguments that stay as they are."""
    from pcp.planning.plan import plan as compiled

    program = plan.program
    flat = [np.array(leaf) for leaf in program.flatten_arguments(*plan.bound, *arguments)]
    wide = widened(program)
    target = plan.target.with_options({})

    def results(way: "Plan", source: Program, arrays: list[np.ndarray[Any, Any]]) -> list[Any]:
        # NumPy arrays are copied to the device, so what is donated there is not theirs.
        return flatten(way.run(*source.argument_tree.unflatten(arrays)))[0]

    exact = results(
        compiled(wide, target), wide, [np.array(a) for a in widened_arrays(program.arguments, flat)]
    )
    plain = results(compiled(program, target), program, flat)
    comparison = Comparison(target)
    judge = Judge(program, flat, exact, plain, comparison, plan.tolerance)
    taken = program.argument_tree.unflatten(flat)[len(plan.bound) :]  # what is not bound
    return judge.errors(flatten(plan.run(*taken))[0])
