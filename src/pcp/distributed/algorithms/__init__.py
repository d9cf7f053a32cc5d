"""The training algorithms, as descriptions: what is merged, when, with which weights.

The arithmetic of an outer step is a Program built elsewhere; here stands only the bookkeeping that decides
its arguments.
"""

from pcp.distributed.algorithms.base import Algorithm, Contribution, merge_order, overlaps, segment_steps
from pcp.distributed.algorithms.diloco import DiLoCo, InvalidAlgorithm

__all__ = [
    "Algorithm",
    "Contribution",
    "DiLoCo",
    "InvalidAlgorithm",
    "merge_order",
    "overlaps",
    "segment_steps",
]
