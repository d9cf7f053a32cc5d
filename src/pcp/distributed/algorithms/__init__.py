"""The training algorithms, as descriptions: what is merged, when, with which weights.

An algorithm supplies what its workers' programs and the Shepherd's trace, and who exchanges with whom (`Topology`); the
Programs are put together in `round_arithmetic/programs.py`.
"""

from types import MappingProxyType
from typing import Any

from pcp.distributed.algorithms.base import (
    Algorithm,
    Amount,
    Contribution,
    InvalidAlgorithm,
    Topology,
    merge_order,
    overlaps,
    segment_steps,
    share_of_steps,
)
from pcp.distributed.algorithms.data_parallel import DataParallel
from pcp.distributed.algorithms.decoupled import DecoupledDiLoCo
from pcp.distributed.algorithms.diloco import DiLoCo
from pcp.distributed.algorithms.muloco import MuLoCo
from pcp.distributed.algorithms.noloco import NoLoCo
from pcp.distributed.algorithms.sparse import SparseLoCo
from pcp.distributed.algorithms.streaming import StreamingDiLoCo

ALGORITHMS: MappingProxyType[str, Any] = MappingProxyType(
    {
        "data-parallel": DataParallel,
        "diloco": DiLoCo,
        "streaming": StreamingDiLoCo,
        "decoupled": DecoupledDiLoCo,
        "sparse": SparseLoCo,
        "muloco": MuLoCo,
        "noloco": NoLoCo,
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
    "MuLoCo",
    "NoLoCo",
    "SparseLoCo",
    "StreamingDiLoCo",
    "Topology",
    "merge_order",
    "overlaps",
    "segment_steps",
    "share_of_steps",
]
