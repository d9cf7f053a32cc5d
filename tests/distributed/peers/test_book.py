"""Who is known, and for how long."""

from pcp.distributed.messages import Blob, PeerAddress
from pcp.distributed.peers.book import MISSED_SECONDS, PeerBook


def test_the_others_are_asked_in_an_order_of_their_own() -> None:
    blobs = [Blob(bytes([number]) * 32, 1) for number in range(16)]
    book = PeerBook("ada")
    book.replace(
        [PeerAddress(name, f"{name}:1") for name in ("ada", "bob", "carol")] + [PeerAddress("dan", "")]
    )
    orders = {tuple(name for name, _ in book.to_ask(blob)) for blob in blobs}
    assert orders == {("bob", "carol"), ("carol", "bob")}
    assert book.listening() == {"bob": "bob:1", "carol": "carol:1"}
    assert book.is_member("dan")
    assert not book.is_member("eve")


def test_who_is_not_listed_any_more_is_forgotten_after_a_while() -> None:
    now = 0.0
    book = PeerBook("ada", lambda: now)
    ada, bob = PeerAddress("ada", ""), PeerAddress("bob", "bob:1")
    book.replace([ada, bob])
    now = 1e6
    assert book.is_member("bob"), "however long there is no Shepherd"
    book.replace([ada])
    now += MISSED_SECONDS / 2
    book.replace([ada])  # it was missing before; that it is told again does not keep it
    now += MISSED_SECONDS / 2 - 1
    assert book.listening() == {"bob": "bob:1"}
    now += 1
    assert not book.is_member("bob")
    assert book.is_member("ada")
    book.replace([ada, PeerAddress("bob", "bob:2")])
    assert book.listening() == {"bob": "bob:2"}
