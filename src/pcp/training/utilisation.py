"""Model FLOP utilisation: what a training step has to compute, beside what its device could compute in that time.

Counted are the products of the loss, once forward and twice backward, masked scores of attention among them. What is computed
again to save memory does not count, nor does anything elementwise.

Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B.
"""

import functools
import time
from dataclasses import dataclass

import numpy as np

from pcp.backends import Target
from pcp.ir import DType, Program
from pcp.planning import plan
from pcp.planning.diagnostics.cost import estimate_cost
from pcp.planning.measuring.hardware import hardware_of
from pcp.tracing import spec, trace

# Dense products in bfloat16 by data sheets, in 10^12 operations a second. The first whose words are all in the name counts.
DENSE_BF16 = (
    ("B200", 2250.0),
    ("H200", 989.5),
    ("GH200", 989.5),
    ("H100 PCIe", 756.5),
    ("H100", 989.5),
    ("A100", 312.0),
    ("L40S", 362.0),
    ("L4", 121.0),
    ("A10", 125.0),
    ("RTX 4090", 165.2),
)
_SIZE, _TRIES = 1024, 5


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a device computes.

    Arguments:
        flops_per_second: a multiplication and an addition count as two.
        source: where the number comes from, for people.
    """

    flops_per_second: float
    source: str


def model_flops(loss: Program) -> int:
    """Floating-point operations of a training step of a loss: its products forward and backward."""
    kinds = estimate_cost(loss).kinds
    return 3 * sum(kinds[name].flops for name in ("dot_general", "convolution") if name in kinds)


@functools.cache
def peak_of(device: str) -> Peak:
    """The peak of a device: from the data sheet of a GPU that is known, else that of a product that is measured now.

    Raises:
        UnknownDevice: there is no such device.
    """
    name = hardware_of(Target.of(device)).name
    for known, tera in DENSE_BF16:
        if set(known.split()) <= set(name.replace("-", " ").split()):
            return Peak(tera * 1e12, f"dense bfloat16 by the data sheet of the {known}")
    peaks = {dtype: _measured(device, dtype) for dtype in (DType.f32, DType.bf16)}
    best = max(peaks, key=peaks.__getitem__)
    return Peak(peaks[best], f"a product of {_SIZE} x {_SIZE} matrices of {best}, measured here")


def _measured(device: str, dtype: DType) -> float:
    """Operations a second of the fastest of a few products."""
    one = spec((_SIZE, _SIZE), dtype)
    run = plan(trace(lambda x, y: x @ y, one, one), device=device).run
    x = np.ones((_SIZE, _SIZE), dtype.numpy)
    seconds = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        np.asarray(run(x, x)[:1, :1])
        seconds.append(time.perf_counter() - start)
    return 2 * _SIZE**3 / min(seconds)
