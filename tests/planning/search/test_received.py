"""What others measured is tried first where it was fast for them, and measured here like anything else."""

from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import FakeBench, chain, kernels

import pcp
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.shared import shared_of

pytestmark = pytest.mark.usefixtures("bench")


def test_lies_change_the_order_and_not_the_choice(bench: FakeBench, tmp_path: FilePath) -> None:
    honest = pcp.plan(chain((4,)), tolerance=1e-2, database=tmp_path / "a.sqlite")
    first = [request.path for request in bench.requests]
    told = shared_of(honest.site_measurements)
    [subject] = {row[0] for row in told if row[1].startswith("sine.")}
    lies = [(subject, "sine.middle@1", 1e-6), (subject, "sine.fast@1", float("inf")), ("e" * 64, "x@1", 1e-6)]
    database = ProfileDatabase(tmp_path / "b.sqlite")
    database.receive(lies)
    bench.requests.clear()
    deceived = pcp.plan(chain((4,)), tolerance=1e-2, database=database)
    second = [request.path for request in bench.requests]
    assert first.index("sine.fast@1") < first.index("sine.middle@1")
    assert second.index("sine.middle@1") < second.index("sine.fast@1")
    assert kernels(deceived) == kernels(honest) == {"sine.fast": 2}
    assert sorted(first) == sorted(second), "each is measured as if nothing had been told"
    assert deceived.measurement is not None
    assert honest.measurement is not None
    assert deceived.measurement.hardware == honest.measurement.hardware
