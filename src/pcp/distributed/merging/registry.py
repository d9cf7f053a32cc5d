"""Merges by the names that a run's plan gives them."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pcp.backends import Device
from pcp.distributed.merging.base import Merge, Segment
from pcp.distributed.merging.centred import CentredClipping
from pcp.distributed.merging.clip import Clip
from pcp.distributed.merging.default import Default
from pcp.distributed.merging.mean import Mean
from pcp.distributed.merging.radial import Radial
from pcp.distributed.merging.trimmed import TrimmedMean
from pcp.errors import PCPError

MERGES: Mapping[str, Callable[[Sequence[Segment], Device | str | None], Merge]] = MappingProxyType(
    {
        "default": Default,
        "mean": Mean,
        "clip": Clip,
        "trimmed": TrimmedMean,
        "centred": CentredClipping,
        "radial": Radial,
    }
)


class UnknownMerge(PCPError):
    """A name that no merge has."""


def merge(name: str, segments: Sequence[Segment], device: Device | str | None = None) -> Merge:
    """The merge of that name, compiled for the leaves of a fragment.

    Arguments:
        name: one of `MERGES`.
        segments: the leaves, in the order of the flat vector.
        device: where it computes; None is the default device.

    Raises:
        UnknownMerge: there is none of that name.
        InvalidSegments: there are no leaves, or one is empty.
    """
    if name not in MERGES:
        raise UnknownMerge(f'there is no merge "{name}"; choose one of {", ".join(sorted(MERGES))}')
    return MERGES[name](segments, device)
