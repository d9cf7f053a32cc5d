"""What a worker makes of its exchanges: alone, with a partner, late, and with an offer that is none."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.gossip.offers import load_offer, store_offer
from pcp.distributed.gossip.slow_weights import SlowWeights, Swap
from pcp.distributed.messages import Blob
from pcp.distributed.runtime import finished
from pcp.distributed.wire.blobs import BlobStore

ALPHA, BETA, GAMMA, SIZE = 0.5, 0.7, 0.6, 6
Array = npt.NDArray[np.float32]


class Gossip:
    """The program, in NumPy."""

    def run(self, theta: Any, slow: Any, momentum: Any, their_theta: Any, their_slow: Any) -> tuple[Any, Any]:
        moved = ((theta - slow) + (their_theta - their_slow)) / 2
        updated = ALPHA * momentum + BETA * moved + GAMMA * (their_slow - slow) / 2
        return slow + updated, updated


class Replica:
    """Parameters that a test trains."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def weights(self, _: int) -> Array:
        return self.values

    def place(self, _: int, vector: Any) -> None:
        self.values = np.asarray(vector)


@pytest.fixture
def replica() -> Replica:
    return Replica(np.arange(SIZE, dtype=np.float32))


@pytest.fixture
def slow(replica: Replica, store: BlobStore) -> SlowWeights:
    made = SlowWeights(Gossip(), replica, store)  # type: ignore[arg-type]  # all that it asks of a replica
    made.begin(True)
    return made


def answer(theirs: Blob | None, number: int = 0) -> Swap:
    async def swap(wanted: int, own: Blob | None) -> Exchanged:
        return (
            Exchanged(max(wanted, number))
            if own is None or theirs is None
            else Exchanged(max(wanted, number), "b", theirs)
        )

    return swap


def test_alone_momentum_goes_on(replica: Replica, slow: SlowWeights) -> None:
    phi, momentum = replica.values.copy(), np.zeros(SIZE, np.float32)
    for _ in range(3):
        replica.values = theta = phi - 1
        finished(slow.exchange(answer(None)))
        momentum = ALPHA * momentum + BETA * (theta - phi)
        phi = phi + momentum
        np.testing.assert_allclose(replica.values, phi, rtol=1e-6)


def test_a_partner_draws_it_nearer(store: BlobStore, replica: Replica, slow: SlowWeights) -> None:
    phi, theta = replica.values.copy(), replica.values - 1
    replica.values = theta
    their_theta, their_slow = np.full(SIZE, 3, np.float32), np.full(SIZE, 5, np.float32)
    seen: list[Blob] = []

    async def swap(number: int, own: Blob | None) -> Exchanged:
        if own is not None:
            seen.append(own)
            for found, given in zip(load_offer(store, own, SIZE), (theta, phi), strict=True):
                np.testing.assert_array_equal(found, given)
        return await answer(store_offer(store, 1, their_theta, their_slow))(number, own)

    finished(slow.exchange(swap))
    assert len(seen) == 1
    expected = phi + BETA * (-1 + -2) / 2 + GAMMA * (their_slow - phi) / 2
    np.testing.assert_allclose(replica.values, expected, rtol=1e-6)


def test_who_comes_late_takes_over_what_the_others_have_and_then_takes_part(
    store: BlobStore, replica: Replica, slow: SlowWeights
) -> None:
    theirs = np.full(SIZE, 9, np.float32)
    replica.values = replica.values - 1
    finished(slow.exchange(answer(store_offer(store, 30, theirs + 1, theirs), 30)))
    np.testing.assert_array_equal(replica.values, theirs)
    replica.values = theirs + 2
    finished(slow.exchange(answer(store_offer(store, 40, theirs, theirs), 40)))
    np.testing.assert_allclose(replica.values, theirs + BETA * 2 / 2, rtol=1e-6)


def test_an_offer_of_no_numbers_counts_as_none(
    store: BlobStore, replica: Replica, slow: SlowWeights, caplog: pytest.LogCaptureFixture
) -> None:
    phi = replica.values.copy()
    replica.values = phi - 1
    finished(slow.exchange(answer(store_offer(store, 1, np.full(SIZE, np.nan), phi))))
    np.testing.assert_allclose(replica.values, phi - BETA, rtol=1e-6)
    assert "the offer of b is not used: an offer holds infinities or NaN" in caplog.text
    finished(slow.exchange(answer(Blob(bytes(32), 8 + 8 * SIZE))))
    assert "the offer of b is not used: blob 0000000000000000 of 56 bytes is not in" in caplog.text
