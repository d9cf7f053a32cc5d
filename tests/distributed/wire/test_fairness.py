"""Sharing among peers that do not ask politely."""

import random

import pytest

from pcp.distributed.wire.fairness import Crowd, FairQueue, TokenBucket, network_of


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    now, taken = 100.0, 0
    while now < 102.0:
        wait = bucket.wait(now)
        now += wait
        if not wait:
            bucket.take(1, now)
            taken += 1
    assert 5 + 2 * 10 <= taken <= 5 + 2 * 10 + 2
    assert bucket.wait(200.0) == 0
    bucket.take(105, 200.0)  # one message of many bytes
    assert bucket.wait(200.0) == pytest.approx(10.0)


def test_owners_take_turns() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(6):
        queue.put("greedy", number)
    queue.put("ada", 10)
    queue.put("bob", 20)
    queue.put("ada", 11)
    order = [queue.get() for _ in range(9)]
    assert [found[0] for found in order[:5] if found] == ["greedy", "ada", "bob", "greedy", "ada"]
    assert [found[1] for found in order if found and found[0] == "greedy"] == list(range(6))
    assert queue.get() is None
    queue.put("greedy", 1)
    assert queue.get(frozenset({"greedy"})) is None
    assert queue.get() == ("greedy", 1)
    assert not queue


def test_the_owner_of_the_most_makes_room_and_waits_the_longest() -> None:
    crowd: Crowd[str] = Crowd(10, random.Random(3))
    for number in range(10):
        assert crowd.enter("flood", f"flood {number}", 0.0) is None
        crowd.wait("flood", f"flood {number}")
    for name in ("ada", "bob"):
        crowded_out = crowd.enter(name, name, 1.0)
        assert crowded_out is not None
        assert crowded_out.startswith("flood")
        crowd.wait(name, name)
    assert len(crowd) == 10
    assert [crowd.next(), crowd.next()] == ["bob", "ada"]
    assert str(crowd.next()).startswith("flood")
    assert len(crowd.entered_before(0.5)) == 8
    for number in range(10):
        crowd.leave("flood", f"flood {number}")
    assert (len(crowd), crowd.waits, crowd.next()) == (2, False, None)


def test_an_honest_one_that_shares_its_address_with_a_flood_gets_in_after_some_tries() -> None:
    """Two thousand strangers a second, turns for five hundred; a handshake takes 50 ms after its turn."""
    crowd: Crowd[int] = Crowd(256, random.Random(7))
    tries, proved, due = 0, 0, {}
    for tick in range(20_000):  # of half a millisecond
        honest = tick % 200 == 100
        crowd.enter("nat", tick, tick)
        crowd.wait("nat", tick)
        tries += honest
        if tick % 4 == 0 and (served := crowd.next()) is not None:
            due[served] = tick + 100
        for item in [each for each, time in due.items() if time == tick]:
            del due[item]
            still_here = item in crowd.entered_before(float("inf"))
            proved += item % 200 == 100 and still_here
            crowd.leave("nat", item)
    assert tries == 100
    assert proved >= 10


def test_who_is_counted_together() -> None:
    assert network_of("192.0.2.7") == "192.0.2.7"
    assert network_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::1") != network_of("2001:db8:1:2::1")
    assert network_of("fe80::1%eth0") == "fe80::/64"
