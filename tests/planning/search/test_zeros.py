"""A program whose plain path misses a tolerance by sums that cancel is planned with zeros in their place."""

from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import FakeBench, counted, kernels

import pcp
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.search.search import ToleranceUnreachable
from pcp.tensor import Tensor

pytestmark = pytest.mark.usefixtures("bench")
SPECS = pcp.spec((4, 6), "f32"), pcp.spec((5,), "f32")


def cancelling(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A sum whose terms cancel, what a quotient makes of it, and something else."""
    waves = pcp.sin(x)
    total = (waves - waves.mean(1, keepdims=True)).sum(1)
    return total, total / (pcp.abs(total) + 1e-8), pcp.log1p(pcp.log1p(y) + 1.0)


def test_zeros_stand_on_every_path(bench: FakeBench, file: FilePath) -> None:
    bench.errors["sine"] = 1.0
    program = pcp.trace(cancelling, *SPECS)
    plan = pcp.plan(program, tolerance=1e-2, database=file)
    assert plan.program is program
    assert kernels(plan) == {"log1p.other": 2}
    assert counted(plan.lowered)["sine"] == 0
    assert all(counted(each.subject)["sine"] == 0 for each in bench.wholes)
    assert "zeros       sums that are zero in exact arithmetic are written as zero" in str(plan)
    bench.requests.clear()
    again = pcp.plan(program, tolerance=1e-2, database=file)
    assert (again.path, bench.requests) == (plan.path, [])
    followed = Path.from_json(plan.path.to_json())
    assert pcp.plan(program, path=followed).lowered.digest == plan.lowered.digest


def test_no_zeros_stand_where_the_plain_path_is_within_the_tolerance(
    bench: FakeBench, file: FilePath
) -> None:
    bench.errors["sine"] = 1e-7
    plan = pcp.plan(pcp.trace(cancelling, *SPECS), tolerance=1e-2, database=file)
    assert "zeros  " not in str(plan)
    assert counted(plan.path.applied(plan.program)) != counted(plan.program)


def test_what_does_not_cancel_is_as_wrong_as_before(bench: FakeBench, file: FilePath) -> None:
    bench.errors["sine"] = 1.0
    program = pcp.trace(lambda x: (pcp.sin(x) - pcp.sin(x).mean()).sum(1), SPECS[0])
    with pytest.raises(
        ToleranceUnreachable, match=r"the plain path of program .* misses the tolerance of 0.01"
    ):
        pcp.plan(program, tolerance=1e-2, database=file)


def test_a_path_with_zeros_is_for_a_program_that_has_some(bench: FakeBench, file: FilePath) -> None:
    bench.errors["sine"] = 1.0
    path = pcp.plan(pcp.trace(cancelling, *SPECS), tolerance=1e-2, database=file).path
    other = pcp.trace(lambda x: pcp.log1p(x), SPECS[1])
    moved = Path.from_json(path.to_json().replace(path.program, other.digest))
    with pytest.raises(
        PathMismatch, match=r"the path writes sums as zero that cancel, and program .* has none"
    ):
        moved.applied(other)
