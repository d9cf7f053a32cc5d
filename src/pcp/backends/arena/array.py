"""The arrays of the arena: NumPy's, which know whether their memory was given away."""

from typing import Any

import numpy as np

from pcp.errors import PCPError

Facts = tuple[tuple[int, ...], "np.dtype[Any]"]


class DeletedArray(PCPError):
    """An array whose memory a call has taken for its results."""


class ArenaArray:
    """An array in the memory of the host, which `numpy.asarray` reads without a copy.

    Arguments:
        array: its elements.
        facts: its shape and element type; one object for all results of a place.
    """

    __slots__ = ("__weakref__", "array", "facts", "is_deleted", "is_shown")

    def __init__(self, array: "np.ndarray[Any, Any]", facts: Facts | None = None) -> None:
        self.array = array
        self.facts: Facts = (array.shape, array.dtype) if facts is None else facts
        self.is_deleted = False
        self.is_shown = False
        """Whether somebody may look at its memory, so that a call that is given it must not write there."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self.facts[0]

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type of its elements."""
        return self.facts[1]

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        if self.is_deleted:
            raise DeletedArray(
                f"the memory of this array of shape {self.shape} was donated to a call; use the state that the call returned"
            )
        if copy or (dtype is not None and dtype != self.dtype):
            return np.array(self.array, dtype)
        self.is_shown = True
        shown = self.array.view()
        shown.flags.writeable = False
        return shown

    def delete(self) -> None:
        """Say that nothing reads it any more."""
        self.is_deleted = True

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return f"ArenaArray({self.array!r})" if not self.is_deleted else f"ArenaArray(deleted, {self.facts})"
