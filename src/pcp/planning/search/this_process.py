"""Whether a path computes in the user's process what it computed where it was measured.

The compiled form that the user will call is called once, unless the same bytes of it agreed in an earlier process, and all of
its kernels are PCP's own. Its results have to be within three tolerances of those that it had on the same arguments in the
child that judged it, or that agreed in an earlier process: both are remembered in a sketch. Otherwise the plain program is
called beside it, which takes time, and may take several times the memory. What differs from that by more than the tolerance
explains is no path here, whatever a child process measured of it.
"""

import functools
import hashlib
import logging
import math
import os
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pcp.backends import ExecutionFailed, OutOfMemory, Placement, Target
from pcp.backends.processors import core_count
from pcp.backends.regions import compiled_in_places
from pcp.interruption import all_of
from pcp.ir import Program
from pcp.ir.types import dtype_of
from pcp.planning.judging.comparison import Comparison, same_bits
from pcp.planning.judging.judge import Judge, result_name
from pcp.planning.judging.sketch import Sketch
from pcp.planning.judging.tolerance import SLICES, Judged, ResultError
from pcp.planning.measuring.random_inputs import Recipe, cold, random_arguments
from pcp.planning.measuring.subject import place
from pcp.planning.measuring.timing import Runnable, timed
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")

TIMES_TOLERANCE = 4.0
"""How many tolerances the results may lie apart from the plain ones: other rows are judged more closely, in float64."""
NUDGE = 2.0**-12
"""The relative change of the arguments by which is found out which results amplify it."""
NUDGES = 4
"""How many changes are tried: a result of few elements may stand still by chance in one of them."""
LOST = 0.3
"""A gradient that `NUDGE` changes by more than this is nothing but roundings, and is judged on the scale of its group."""

_SWITCHES = (
    "XLA_",
    "JAX_",
    "PCP_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "NVIDIA_",
    "CUDA_",
    "CUBLAS",
    "CUDNN_",
    "TF_",
)
"""How variables of the environment begin that libraries read when compiled code runs."""

Array = np.ndarray[Any, Any]
_finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16
_compared: set[tuple[str, str, str]] = set()


def difference_here(whole: Whole, path: Path, evidence: Evidence | None = None) -> str | None:
    """What is different in this process, if anything; a path is compared once.

    Arguments:
        whole: the program, its tolerance, and what it is compiled for.
        path: one that was found for it.
        evidence: knows results that agreed before, or that were right where the path was measured; None knows none.
    """
    if evidence is not None and path.digest in evidence.sketches:
        evidence.agree(whole.agreement(path), evidence.sketches[path.digest])
    key = (path.digest, whole.subject, str(whole.target))
    if path == whole.plain or key in _compared:
        return None
    try:
        difference = _difference(whole, path, evidence)
    except OutOfMemory as error:
        said = f"the path was not compared in this process, which has too little memory for that: {error}"
        log.warning("%s", said)
        if evidence is not None:
            evidence.uncompared = said
        return None
    except ExecutionFailed as error:
        return f"it does not run: {error}"
    if difference is None:
        _compared.add(key)
    return difference


def _difference(whole: Whole, path: Path, evidence: Evidence | None) -> str | None:
    target = path.target(whole.target.devices)
    called = _Called(path.applied(whole.program), target, path.placement, path.bound)
    if evidence is None:
        arrays = _arguments(whole)
        return _compared_with_plain(whole, arrays, called(arrays))
    asked = whole.agreement(path)
    is_ours = not any(kernel.is_added for kernel in path.kernels().values())
    form = "" if path.placement is not None or path.bound or not is_ours else called.form
    same = hashlib.sha256(f"{asked} {form} {_switches()}".encode()).hexdigest() if form else ""
    evidence.compiled = called.runnable  # so that the plan has it, too
    if same and evidence.agreed(same) is not None:
        return None
    said = _unlike_what_was_right(whole, called, evidence, asked)
    if said is None and same:
        evidence.agree(same, b"")
    return said


def _unlike_what_was_right(whole: Whole, called: "_Called", evidence: Evidence, asked: str) -> str | None:
    """What is different between results and those that were right before; where none are known, the plain program's."""
    arrays = _arguments(whole)
    results = called(arrays)
    sketch = Sketch.of(whole.program, arrays, results, whole.ignored, exact=not whole.tolerance)
    known = evidence.agreed(asked)
    # With other algorithms for its products a call rounds otherwise. Those that agreed are within a tolerance of exact results,
    # so these are within the `TIMES_TOLERANCE` that are allowed.
    apart = sketch.distance(Sketch.from_bytes(known)) if known is not None else math.inf
    if apart <= (TIMES_TOLERANCE - 1) * (whole.tolerance or 0.0):
        return None
    log.info(
        "results here are %.2g from those that were right, so that the plain program is called beside", apart
    )
    said = _compared_with_plain(whole, arrays, results)
    if said is None:
        evidence.agree(asked, sketch.to_bytes())
    return said


def _switches() -> list[object]:
    """What may change the results of compiled code from outside."""
    set_here = sorted(item for item in os.environ.items() if item[0].startswith(_SWITCHES))
    return [core_count(), *set_here]


class _Called:
    """A program compiled, as a function of arrays."""

    def __init__(
        self,
        program: Program,
        target: Target,
        placement: Placement | None = None,
        bound: tuple[int, ...] = (),
    ) -> None:
        self.program, self.target = program, target
        executable = compiled_in_places(program, target, placement, bound)
        self.form: str = getattr(executable, "form", "")
        """Digest of the compiled form that is kept on disk; empty where there is none."""
        self.runnable = Runnable(executable, program.arguments)

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        buffers = place(self.program, arrays, self.target)
        results = timed(self.runnable, buffers, self.target)[0]
        return all_of([functools.partial(np.asarray, result) for result in results], core_count())


def _compared_with_plain(whole: Whole, arrays: Sequence[Array], results: Sequence[Array]) -> str | None:
    """What is different between results and the plain program's, which is called on the same arguments and changed ones."""
    program, target = whole.program, whole.plain.target(whole.target.devices)
    called = _Called(whole.measured_beside, target)
    expected = called(arrays)
    if not whole.tolerance:
        differing = [
            place for place, pair in enumerate(zip(results, expected, strict=True)) if not same_bits(*pair)
        ]
        return (
            f"result {result_name(program, differing[0])} is not bit for bit that of the plain program"
            if differing
            else None
        )
    comparison = Comparison(target)

    def too_far(other: Sequence[Array], lost: float | None, nudge: float) -> dict[str, ResultError]:
        """The results that are further from the plain ones than the tolerance and the effect of a change explain."""
        judge = Judge(program, arrays, expected, other, comparison, lost, whole.ignored)
        return {
            each.name: each
            for each in judge.errors(results)
            if each.least_tolerance > whole.tolerance * max(TIMES_TOLERANCE, _amplified(each, nudge))
        }

    wrong = too_far(expected, None, NUDGE)
    for seed in range(NUDGES):  # some results are nothing but roundings, and any two paths disagree on them
        if not wrong:
            return None
        nudged, nudge = _nudged(arrays, seed)
        changed = _less_kept(program, called(nudged), arrays, nudged)
        still = too_far(changed, LOST, nudge)
        wrong = {name: still[name] for name in wrong if name in still}
    return _said(next(iter(wrong.values())), whole.tolerance) if wrong else None


def _amplified(error: ResultError, nudge: float) -> float:
    """How many times a change of the arguments a result changes by; 0 where that is not known."""
    return error.least_plain / nudge if math.isfinite(error.least_plain) else 0.0


def _said(wrong: ResultError, tolerance: float) -> str:
    if wrong.judged is Judged.share:
        what = f"a share of {wrong.error:.3g} of result {wrong.name} differs"
    elif wrong.error >= wrong.slice_error / SLICES:
        what = f"result {wrong.name} differs by {wrong.error:.3g}"
    else:
        return (
            f"a slice of result {wrong.name} ({wrong.slice}) differs by {wrong.slice_error:.3g} from that of the plain "
            f"program; the tolerance for slices is {SLICES * tolerance:g}"
        )
    return f"{what} from that of the plain program; the tolerance is {tolerance:g}"


def _arguments(whole: Whole) -> list[Array]:
    inputs = whole.inputs
    if isinstance(inputs, Recipe):
        return random_arguments(whole.program.arguments, cold(inputs), 0)
    return [np.asarray(array) for array in inputs[0]]


def _nudged(arrays: Sequence[Array], seed: int) -> tuple[list[Array], float]:
    """Arguments that are changed a little, and how much: by what the least exact of their element types can hold."""
    rng = np.random.default_rng(seed)
    moving = [_is_inexact(array) for array in arrays]
    spacings = [float(_finfo(array.dtype).eps) for array, moves in zip(arrays, moving, strict=True) if moves]
    size = max([NUDGE, *spacings])
    return [
        (array * (1.0 + size * rng.choice((-1.0, 1.0), array.shape))).astype(array.dtype) if moves else array
        for array, moves in zip(arrays, moving, strict=True)
    ], size


def _less_kept(
    program: Program, results: Sequence[Array], before: Sequence[Array], nudged: Sequence[Array]
) -> list[Array]:
    """Results of changed arguments, without the change in the part that is only kept: it says nothing of what is new."""
    left = list(results)
    for entry, old, new in zip(program.arguments, before, nudged, strict=True):
        if entry.alias is not None and entry.kept and _is_inexact(old):
            wide = np.complex128 if old.dtype.kind == "c" else np.float64
            left[entry.alias] = left[entry.alias] - entry.kept * (new.astype(wide) - old.astype(wide))
    return left


def _is_inexact(array: Array) -> bool:
    return dtype_of(array.dtype).is_differentiable
