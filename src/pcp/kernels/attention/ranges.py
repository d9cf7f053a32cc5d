"""Which queries or keys a program of attention goes over, and where among them nothing is hidden."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pcp.kernels.attention.sight import Band
from pcp.kernels.pallas import Array, jnp, lax


@dataclass(frozen=True, slots=True)
class Range:
    """Places that a program goes over, and those among them where nothing is hidden.

    Arguments:
        first, end: the first one, and the one after the last.
        seen_from, seen_to: blocks between these have nothing to hide; None for the first, or the end.
    """

    first: Array
    end: Array
    seen_from: Array | None
    seen_to: Array | None

    @classmethod
    def of(cls, band: Band, first: Array, count: int, end: Array, counts: Array) -> "Range":
        """The places, before an end, that belong to some of `count` places from the first one on, if that counts."""
        lower, upper = band.some(first, count)
        start = jnp.int32(0) if lower is None else jnp.maximum(jnp.int32(0), lower)
        return cls(start, jnp.where(counts, least(end, upper), 0), *band.all(first, count))

    def over(self, block: int, step: Callable[[Array, Any, bool], Any], start: Any) -> Any:
        """A step for the first place of each block that holds one of these places; it is told whether something is hidden."""
        lower, upper = lax.div(self.first, block), lax.div(self.end + (block - 1), block)
        bounds, hides = [lower], []
        if self.seen_from is not None:
            bounds.append(
                jnp.clip(lax.div(self.seen_from + (block - 1), block), lower, jnp.maximum(lower, upper))
            )
            hides.append(True)
        hides.append(False)
        if self.seen_to is not None:
            bounds.append(jnp.clip(lax.div(self.seen_to, block), bounds[-1], jnp.maximum(bounds[-1], upper)))
            hides.append(True)
        state = start
        for begin, end, hidden in zip(bounds, [*bounds[1:], upper], hides, strict=True):
            state = lax.fori_loop(
                begin, end, lambda i, now, hidden=hidden: step(i * block, now, hidden), state
            )
        return state


def least(end: Array, bound: Array | None) -> Array:
    """An end, or a bound before it, if there is one."""
    return end if bound is None else jnp.minimum(end, bound)
