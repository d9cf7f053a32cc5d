"""The studies of `benchmarks.distributed.churn`, shortened: slow and failing workers hold nobody up."""

import pytest
from benchmarks.distributed.churn import WAYS, Way, churn, straggler

BY_NAME = {way.name: way for way in WAYS}
PATIENT = BY_NAME["diloco, equal shares"]
PROMPT = BY_NAME["decoupled, quorum 0.75"]


@pytest.mark.share(2, each="way.name")
@pytest.mark.parametrize("slower", [4.0, 10.0])
@pytest.mark.parametrize(
    "way", [BY_NAME[name] for name in ("diloco", "sparse", "streaming")] + [PROMPT], ids=lambda way: way.name
)
def test_the_fast_keep_their_rate_beside_a_slow_worker(way: Way, slower: float) -> None:
    assert straggler(way, 24, slower)["kept"] >= 0.9


def test_a_barrier_lets_everybody_wait_for_the_slow_worker() -> None:
    assert straggler(PATIENT, 24, 4.0)["kept"] < 0.5


def test_most_of_the_work_is_merged_although_workers_fail() -> None:
    prompt, patient = (churn(way, workers=8, rounds=30, seeds=(1,)) for way in (PROMPT, PATIENT))
    assert prompt["of_up"] >= 0.88
    assert patient["of_up"] < 0.75
