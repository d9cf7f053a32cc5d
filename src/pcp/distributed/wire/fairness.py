"""Sharing among peers that do not ask politely: turns by address or name, rates, and who has to make room. Pure."""

import ipaddress
import random
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

_NO_TIME = 1e-6
"""Rounding must not leave a wait that is too short to change the time."""

Item = TypeVar("Item", bound=Hashable)


class TokenBucket:
    """A rate with bursts: what is taken beyond it has to be waited for.

    Arguments:
        rate: units a second.
        burst: units that may be taken at once.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, 0.0

    def take(self, units: float, now: float) -> None:
        """Takes units, also those that are not there yet."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - units
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until what was taken has come in; 0 when more may be taken now."""
        wait = -self._left / self._rate - (now - self._at)
        return wait if wait > _NO_TIME else 0.0


class FairQueue(Generic[Item]):
    """Items by owner: owners take turns, each with its oldest item."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, deque[Item]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._items)

    def put(self, owner: str, item: Item) -> None:
        """Adds an item of an owner."""
        self._items.setdefault(owner, deque()).append(item)

    def get(self, passed_over: frozenset[str] = frozenset()) -> tuple[str, Item] | None:
        """Takes the next item of the owner whose turn it is, with its name.

        Arguments:
            passed_over: owners that get nothing now.
        """
        owner = next((owner for owner in self._items if owner not in passed_over), None)
        if owner is None:
            return None
        items = self._items[owner]
        item = items.popleft()
        if items:
            self._items.move_to_end(owner)
        else:
            del self._items[owner]
        return owner, item


class Crowd(Generic[Item]):
    """At most so many items, most of which may be hostile: owners with few items come first, and with many leave first.

    Who leaves is drawn by lot, and who came last has the first turn. Oldest first would be of no use in a flood that
    shares an owner with an honest item: what has waited for its turn is then the oldest.

    Arguments:
        capacity: items at most.
        lots: for drawing them.
    """

    def __init__(self, capacity: int, lots: random.Random) -> None:
        self._capacity = capacity
        self._lots = lots
        self._items: dict[str, dict[Item, float]] = {}
        self._waiting: dict[str, dict[Item, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def waits(self) -> bool:
        """Whether an item waits for its turn."""
        return bool(self._waiting)

    def enter(self, owner: str, item: Item, now: float) -> Item | None:
        """Adds an item, and returns one that was removed for it."""
        crowded_out = None
        if self._count >= self._capacity:
            most = max(map(len, self._items.values()))
            fullest = self._lots.choice([each for each, items in self._items.items() if len(items) == most])
            crowded_out = self._lots.choice(list(self._items[fullest]))
            self.leave(fullest, crowded_out)
        self._items.setdefault(owner, {})[item] = now
        self._count += 1
        return crowded_out

    def leave(self, owner: str, item: Item) -> None:
        """Removes an item, if it is here."""
        if item in self._items.get(owner, ()):
            self._count -= 1
        for kept in (self._items, self._waiting):
            _remove(kept, owner, item)

    def wait(self, owner: str, item: Item) -> None:
        """Asks for a turn for an item that is here."""
        self._waiting.setdefault(owner, {})[item] = None

    def next(self) -> Item | None:
        """Gives the next turn: to an owner of few items, to its latest."""
        if not self._waiting:
            return None
        owner = min(reversed(self._waiting), key=lambda each: len(self._items[each]))
        item = next(reversed(self._waiting[owner]))
        _remove(self._waiting, owner, item)
        return item

    def entered_before(self, time: float) -> list[Item]:
        """The items that came before a time."""
        return [item for items in self._items.values() for item, since in items.items() if since < time]


def _remove(kept: dict[str, dict[Item, Any]], owner: str, item: Item) -> None:
    items = kept.get(owner, {})
    if item in items:
        del items[item]
        if not items:
            del kept[owner]


def network_of(host: str) -> str:
    """Who is counted together: an IPv4 address, or the /64 network in which an IPv6 host chooses its addresses freely."""
    address = ipaddress.ip_address(host.split("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))
