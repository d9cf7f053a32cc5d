"""A path that was measured in a child is compared once more in the process that will use it."""

from pathlib import Path as FilePath

import numpy as np
import pytest

import pcp
from pcp import backends
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Kernel, sites_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.named import Named, is_named, tensors
from pcp.planning import in_place
from pcp.planning.chosen import PathDiffers
from pcp.planning.hardware import hardware_of, versions
from pcp.planning.measurement import Failure, Measurement
from pcp.planning.path import Path
from pcp.planning.preparation import prepared
from pcp.planning.profile_database import ProfileDatabase
from pcp.planning.tuning import kernel_label
from pcp.planning.whole import Whole
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor


def _times(factor: float, name: str) -> Kernel:
    """The plain softmax, times a factor."""

    def build(op: ir.Operation) -> list[Tensor]:
        x, axis = tensors(op)[0], Named.of(op).attributes["axis"]
        e = pcp.exp(x - x.max(axis, keepdims=True))
        return [e / e.sum(axis, keepdims=True) * factor]

    return Kernel(name, Effect.reassociating, "for tests", is_named("pcp.softmax"), StableHLO(build))


WRONG = _times(0.5, "softmax.wrong")
ROUNDED = _times(1.0 + 2.0**-21, "softmax.rounded")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> pcp.Program:
    """A program with one site, at which a wrong kernel may stand."""
    kernels = FAMILIES["softmax"].kernels
    monkeypatch.setattr(FAMILIES["softmax"], "kernels", {**kernels, WRONG.name: WRONG, ROUNDED.name: ROUNDED})
    monkeypatch.setattr(in_place, "_compared", set())
    return pcp.trace(lambda x: pcp.softmax(x, -1) * 2.0, pcp.spec((6, 33), "f32"))


def path_by(program: pcp.Program, name: str) -> Path:
    [site] = sites_of(prepared(program, 1e-2), "cpu")
    return Path.of(program, {site.key: FAMILIES["softmax"].kernels[name]}, {}, 1e-2)


def test_a_sound_path_is_the_same_here_and_another_is_not(program: pcp.Program) -> None:
    device = backends.device("cpu:0")
    whole = Whole(program, 1e-3, {})
    assert in_place.difference_here(whole, path_by(program, "softmax.reciprocal"), device) is None
    said = in_place.difference_here(whole, path_by(program, WRONG.name), device)
    assert said is not None
    assert "from that of the plain program; the tolerance is 0.001" in said


@pytest.mark.usefixtures("program")
def test_results_that_are_nothing_but_roundings_are_no_difference() -> None:
    program = pcp.trace(
        lambda x, y: (pcp.softmax(x, -1).sum(-1) - 1.0) * y, pcp.spec((64, 33), "f32"), pcp.spec((64,), "f32")
    )
    [site] = sites_of(prepared(program, 1e-3), "cpu")
    path = Path.of(program, {site.key: ROUNDED}, {}, 1e-3)
    rng = np.random.default_rng(5)
    example = [rng.standard_normal(shape).astype(np.float32) for shape in ((64, 33), (64,))]
    x, y = example
    results = [np.asarray(pcp.plan(each).run(x, y)) for each in (program, path.applied(program))]
    assert np.linalg.norm(results[0] - results[1]) > 0.1 * np.linalg.norm(results[0])
    whole = Whole(program, 1e-3, {}, [example], "these")
    assert in_place.difference_here(whole, path, backends.device("cpu:0")) is None


def test_a_path_that_differs_is_dropped_and_recorded(program: pcp.Program, tmp_path: FilePath) -> None:
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    hardware = hardware_of(backends.device("cpu:0"))
    [site] = sites_of(prepared(program, 1e-2), "cpu")
    times = {"seconds": (0.1, 0.1, 0.1, 0.1, 0.1, 0.1), "plain_seconds": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)}

    def claim(subject: str, path: str, of: Path | None) -> None:
        row = Measurement(
            subject, path, hardware.digest, versions(), error=1e-6, plain_error=1e-7, when=1.0, **times
        )
        database.add(row, path=of, hardware=hardware)

    wrong = path_by(program, WRONG.name)
    claim(site.region.digest, kernel_label(WRONG), None)
    claim(Whole(program, 1e-2, {}).subject, wrong.digest, wrong)
    plan = pcp.plan(program, tolerance=1e-2, database=database, budget=0)
    assert plan.path.is_plain
    rows = [row for row in database.measurements(path=wrong.digest) if row.failure is not None]
    assert [row.failure for row in rows] == [Failure.differs_here]
    assert rows[0].detail.startswith("result 0 differs by ")


def test_a_process_in_which_every_path_differs_says_so(
    program: pcp.Program, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcp.planning.chosen.difference_here", lambda *_: "result 0 is 0")
    with pytest.raises(PathDiffers, match="the last one because result 0 is 0; run `pcp doctor`"):
        pcp.plan(program, tolerance=1e-2, database=tmp_path / "profile.sqlite", budget=0)
