"""A flood of refusals is a line a minute."""

from pcp.distributed.wire.refusal_log import INTERVAL_SECONDS, RefusalLog, Refused
from pcp.distributed.wire.traffic import Statistics


def test_each_kind_is_told_at_once_and_then_once_a_minute_with_its_count() -> None:
    told: list[Refused] = []
    now = 1000.0
    log = RefusalLog(told.append, lambda: now)
    for number in range(5000):
        now = 1000.0 + number / 100  # for 50 seconds
        log.add("preamble", f"stranger {number}")
    log.add("capacity", "ada")
    log.flush()
    assert told == [Refused("preamble", 1, "stranger 0"), Refused("capacity", 1, "ada")]
    now = 1000.0 + INTERVAL_SECONDS
    log.flush()
    log.flush()
    assert told[2:] == [Refused("preamble", 4999, "stranger 4999")]
    assert str(told[2]) == "refused 4999 times (preamble); the latest: stranger 4999"
    now += INTERVAL_SECONDS
    log.flush()
    assert len(told) == 3
    log.add("preamble", "later")
    assert told[3] == Refused("preamble", 1, "later")


def test_every_refusal_is_counted_though_few_are_told() -> None:
    told: list[Refused] = []
    statistics = Statistics(told.append)
    for _ in range(100):
        statistics.count_refused("crowded out", "192.0.2.1:5")
    assert statistics.refused == {"crowded out": 100}
    assert told == [Refused("crowded out", 1, "192.0.2.1:5")]
