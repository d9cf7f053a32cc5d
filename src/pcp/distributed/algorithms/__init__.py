"""The training algorithms, as descriptions: what is merged, when, with which weights.

The arithmetic of an outer step is a Program built elsewhere; here stands only the bookkeeping that decides
its arguments.
"""

from types import MappingProxyType
from typing import Any

from pcp.distributed.algorithms.base import (
    Algorithm,
    Amount,
    Contribution,
    InvalidAlgorithm,
    merge_order,
    overlaps,
    segment_steps,
    share_of_steps,
)
from pcp.distributed.algorithms.data_parallel import DataParallel
from pcp.distributed.algorithms.decoupled import DecoupledDiLoCo
from pcp.distributed.algorithms.diloco import DiLoCo
from pcp.distributed.algorithms.sparse import SparseLoCo
from pcp.distributed.algorithms.streaming import StreamingDiLoCo

ALGORITHMS: MappingProxyType[str, Any] = MappingProxyType(
    {
        "data-parallel": DataParallel,
        "diloco": DiLoCo,
        "streaming": StreamingDiLoCo,
        "decoupled": DecoupledDiLoCo,
        "sparse": SparseLoCo,
    }
)
"""Every algorithm that a run may have, by the name that settings give it."""

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Amount",
    "Contribution",
    "DataParallel",
    "DecoupledDiLoCo",
    "DiLoCo",
    "InvalidAlgorithm",
    "SparseLoCo",
    "StreamingDiLoCo",
    "merge_order",
    "overlaps",
    "segment_steps",
    "share_of_steps",
]
