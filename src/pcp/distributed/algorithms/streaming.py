"""Streaming DiLoCo: parts of the parameters are merged in turn, while training goes on."""

from dataclasses import dataclass

from pcp.distributed.algorithms.base import Described


@dataclass(frozen=True, slots=True)
class StreamingDiLoCo(Described):
    """The description of Streaming DiLoCo.

    After every H / P inner steps each worker pushes one of P fragments, and trains on. The outer step is DiLoCo's, with a
    momentum for each fragment. tau inner steps later the worker adopts the result Theta of that fragment,

        theta <- alpha theta + (1 - alpha) Theta,

    and counts its next change of the fragment from Theta. P = 1, tau = 0 and alpha = 0 are DiLoCo.

    Arguments:
        fragments: P, a divisor of H; the parameters are cut by bytes.
        upload: codec of the pseudo-gradients; the paper's four bits.
        others: as `Algorithm` says.

    Raises:
        InvalidAlgorithm: for a hyper-parameter out of range.

    Source: Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch"
    (2501.18512), Algorithm 2.
    """

    inner_steps: int
    fragments: int = 2
    delay: int = 1
    mixing: float = 0.5
    outer_learning_rate: float = 0.4
    outer_momentum: float = 0.9
    residual_decay: float = 1.0
    upload: str = "int4"
    download: str = "f32"
    merge: str = "mean"
