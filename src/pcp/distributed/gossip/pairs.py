"""Who exchanges with whom: a function of the run, the number of the exchange and the members, so nobody has to agree on it."""

import hashlib
from collections.abc import Iterable


def pairs(seed: int, number: int, members: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs of an exchange: a random matching of all members but one at most.

    Arguments:
        seed: of the run.
        number: of the exchange; other numbers give other pairs.
        members: their names, in any order.
    """

    def rank(member: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{number}\n{member}".encode()).digest()

    order = sorted(set(members), key=rank)
    return list(zip(order[::2], order[1::2], strict=False))


def partner_of(member: str, seed: int, number: int, members: Iterable[str]) -> str | None:
    """With whom a member exchanges; None for the one that is left over."""
    for pair in pairs(seed, number, {*members, member}):
        if member in pair:
            return pair[1 - pair.index(member)]
    return None
