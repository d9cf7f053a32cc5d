"""Plans without time to measure: what is known of equal and of similar sites decides, and says no more than is known."""

import logging
from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import FakeBench, chain, counted_in, kernels

import pcp
from pcp.backends import OutOfMemory
from pcp.planning import chosen

pytestmark = pytest.mark.usefixtures("bench")


def known(sizes: tuple[int, ...], file: FilePath, bench: FakeBench) -> None:
    """Plan a program with time to measure."""
    pcp.plan(chain(sizes), tolerance=1e-2, database=file)
    bench.requests.clear()


def test_kernels_that_were_measured_at_equal_sites_are_taken_and_no_error_is_claimed(
    bench: FakeBench, file: FilePath
) -> None:
    known((4, 5, 6), file, bench)
    plan = pcp.plan(chain((5,)), tolerance=1e-2, database=file, budget=0)
    assert bench.requests == []
    assert kernels(plan) == {"sine.fast": 2}
    assert plan.error is None
    assert plan.measurement is None
    shown = str(plan)
    assert "predicted, not measured: its sites should take 0.20 of their plain time" in shown
    assert "(1 classes of sites were measured, 0 are like others that were)" in shown
    assert (
        "error       not measured; predicted to be at most 5.7e-03, from sites alone; the tolerance is 0.01"
        in shown
    )
    assert plan.to_json()["error"] is None
    assert plan.to_json()["predicted"]["error"] == pytest.approx(4 * 2**0.5 * 1e-3)
    measured = pcp.plan(chain((5,)), tolerance=1e-2, database=file)
    assert "predicted" not in str(measured)
    assert measured.error == pytest.approx(2**0.5 * 1e-3)


def test_what_the_whole_may_come_to_has_to_be_within_the_tolerance(bench: FakeBench, file: FilePath) -> None:
    known((4, 5, 6), file, bench)
    plan = pcp.plan(chain((5,)), tolerance=4e-3, database=file, budget=0)  # alone a fast one has 1e-3
    assert kernels(plan) == {"sine.middle": 2}
    assert kernels(pcp.plan(chain((5,)), tolerance=3e-7, database=file, budget=0)) == {}


def test_of_kernels_at_similar_sites_only_those_that_keep_the_arithmetic_are_taken(
    bench: FakeBench, file: FilePath
) -> None:
    bench.seconds["cosine"] = 0.6
    known((4, 5, 6, 7, 8), file, bench)
    plan = pcp.plan(chain((12,)), tolerance=1e-2, database=file, budget=0)
    assert kernels(plan) == {"sine.bitwise": 2}  # the fast one lowers precision
    assert plan.error is None
    assert "0 classes of sites were measured, 1 are like others that were" in str(plan)
    assert "sine.bitwise  predicted to take 0.60 of the plain operation's time" in str(plan)
    assert bench.requests == []


def test_where_too_little_is_known_the_plain_path_is_taken(bench: FakeBench, file: FilePath) -> None:
    bench.seconds["cosine"] = 0.6
    known((4, 5, 6), file, bench)
    for tolerance, sizes in ((1e-2, (12,)), (0.0, (4,))):  # three regions; and bits that nobody compared
        plan = pcp.plan(chain(sizes), tolerance=tolerance, database=file, budget=0)
        assert plan.path.is_plain
        assert "predicted" not in str(plan)


def test_what_lost_in_the_whole_is_not_predicted_to_win(bench: FakeBench, file: FilePath) -> None:
    bench.overhead = 1000.0
    known((4,), file, bench)
    assert pcp.plan(chain((4,)), tolerance=1e-2, database=file, budget=0).path.is_plain


def test_a_predicted_path_that_does_not_compile_gives_way_to_the_plain_one(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known((4, 5, 6), file, bench)

    def full(*_: object) -> None:
        raise OutOfMemory("it takes 3 bytes more than there are")

    monkeypatch.setattr(chosen, "check_capacity", full)
    with caplog.at_level(logging.WARNING):
        plan = pcp.plan(chain((5,)), tolerance=1e-2, database=file, budget=0)
    assert plan.path.is_plain
    assert (
        "the predicted path is not taken, because it does not compile: it takes 3 bytes more" in caplog.text
    )


def test_similar_sites_say_what_is_worth_measuring_and_what_is_not(bench: FakeBench, file: FilePath) -> None:
    bench.seconds |= {"tanh": 0.5, "logistic": 0.3, "cosine": 2.0}
    known((4, 5, 6, 7, 8), file, bench)
    plan = pcp.plan(chain((12,)), tolerance=1e-2, database=file)
    alone = [each for each in bench.requests if each not in bench.wholes]
    assert [each.path for each in alone] == ["sine.middle@1", "sine.fast@1"]  # the strongest first
    assert not any(counted_in(each)["cosine"] for each in bench.requests)
    assert "not measured: sine.bitwise: by what it took at similar sites, it would be slower" in str(plan)
    assert kernels(plan) == {"sine.middle": 2}
