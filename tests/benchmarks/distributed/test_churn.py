"""What DiLoCo keeps of its speed while workers fail and come back, in virtual time: the same on every machine."""

from benchmarks.distributed.churn import WAYS, churn


def test_diloco_keeps_most_of_its_speed_while_workers_fail() -> None:
    way = next(each for each in WAYS if each.name == "diloco")
    row = churn(way, workers=8, rounds=40, seeds=range(2))
    assert row["of_all"] > 0.74, "see benchmarks/results/goodput.md: python -m benchmarks churn"
