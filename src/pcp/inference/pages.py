"""Which page of the cache belongs to whom, and which hold prefixes that somebody may ask for again.

A page is free, held by one or more texts, or kept: held by none, but full of a known prefix. Kept pages are taken when no free
one is left, those first that nobody asked for the longest. Page 0 is nobody's: idle rows write there.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Sequence

import numpy as np

Key = bytes
"""Of a full page: a digest of the weights' digest and all tokens from the first to the page's last."""


class Pages:
    """Pages of a cache.

    Arguments:
        count: of pages, with page 0.
        size: tokens of a page.
        weights: a digest of the weights, so that what others computed is never found.
    """

    def __init__(self, count: int, size: int, weights: bytes = b"") -> None:
        self.count, self.size = count, size
        self._root = hashlib.sha256(weights).digest()
        self._free = list(range(count - 1, 0, -1))
        self._holders: Counter[int] = Counter()
        self._page_of: dict[Key, int] = {}
        self._key_of: dict[int, Key] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """How many pages texts hold."""
        return len(self._holders)

    @property
    def available(self) -> int:
        """How many can be taken."""
        return len(self._free) + len(self._kept)

    def needed(self, tokens: int) -> int:
        """Pages for so many tokens."""
        return -(-tokens // self.size)

    def key(self, before: Key | None, tokens: Sequence[int]) -> Key:
        """Of a page of these tokens behind the page of another key; None for the first."""
        return hashlib.sha256((before or self._root) + np.asarray(tokens, np.int64).tobytes()).digest()

    def known(self, tokens: Sequence[int]) -> tuple[list[int], list[Key]]:
        """The pages that hold the longest known prefix of a text, held from now on, and their keys.

        At least one token is left out, for its scores are asked for.
        """
        pages: list[int] = []
        keys: list[Key] = []
        for start in range(0, len(tokens) - self.size, self.size):
            key = self.key(keys[-1] if keys else None, tokens[start : start + self.size])
            page = self._page_of.get(key)
            if page is None:
                break
            self._holders[page] += 1
            self._kept.pop(page, None)
            pages.append(page)
            keys.append(key)
        return pages, keys

    def take(self, count: int) -> list[int] | None:
        """So many pages, held from now on; None, and nothing is taken, if there are not so many."""
        if count > self.available:
            return None
        while len(self._free) < count:
            page, _ = self._kept.popitem(last=False)
            del self._page_of[self._key_of.pop(page)]
            self._free.append(page)
        taken = [self._free.pop() for _ in range(count)]
        self._holders.update(taken)
        return taken

    def give(self, pages: Sequence[int]) -> None:
        """Hold these no more; the last of a prefix is taken by others before the first."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page] == 0:
                del self._holders[page]
                if page in self._key_of:
                    self._kept[page] = None
                else:
                    self._free.append(page)

    def keep(self, page: int, key: Key) -> None:
        """A page is full of a prefix; if another page holds the same, this one is known to nobody."""
        if key not in self._page_of:
            self._page_of[key] = page
            self._key_of[page] = key

    def forget(self) -> None:
        """What is kept is no longer true: the cache was lost, or the weights changed."""
        self._page_of.clear()
        self._key_of.clear()
        self._free += self._kept
        self._kept.clear()
