"""A convolution of an input whose elements lie apart, as the cotangent of a strided one is, by convolutions of what lies close.

Of a result's places only each second one, for a distance of two, meets the same numbers of the kernel. Such a phase is a
convolution by a part of the kernel, in which nothing is multiplied by the zeros between elements. Then phases are put between
one another.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

from pcp.ir import TensorSpec
from pcp.ops.movement import pad, slice_, zeros
from pcp.ops.windows.convolution_rules import Convolution
from pcp.tensor import Tensor

Convolve = Callable[[Convolution, Tensor, Tensor, TensorSpec], Tensor]
"""Makes a convolution whose elements lie close together; its result, the last argument, says how much padding is behind."""


def has_phases(conv: Convolution) -> bool:
    """Whether it can be made of phases: along an axis where the input is spread, nothing else is."""
    spread = zip(conv.x_dilation, conv.strides, conv.kernel_dilation, strict=True)
    return all(apart == 1 or stride == dilation == 1 for apart, stride, dilation in spread)


def by_phases(conv: Convolution, x: Tensor, kernel: Tensor, result: TensorSpec, convolve: Convolve) -> Tensor:
    """The convolution, of a form that `has_phases`."""
    total = None
    for phase in itertools.product(*map(range, conv.x_dilation)):
        part = _phase(conv, x, kernel, result, phase, convolve)
        if part is not None:
            total = part if total is None else total + part
    return zeros(result.shape, result.dtype) if total is None else total


def _phase(
    conv: Convolution,
    x: Tensor,
    kernel: Tensor,
    result: TensorSpec,
    phase: tuple[int, ...],
    convolve: Convolve,
) -> Tensor | None:
    """The places of one phase, with zeros between them; None where there are none, or nothing of the kernel meets them."""
    starts, steps = [0] * kernel.ndim, [1] * kernel.ndim
    shape, widths, padding = list(result.shape), [(0, 0, 0)] * x.ndim, []
    for i, (first, apart, (low, _)) in enumerate(zip(phase, conv.x_dilation, conv.padding, strict=True)):
        of_kernel, of_result = conv.layout.kernel[2 + i], conv.layout.result[2 + i]
        # Place apart q + first meets number start + apart m of the kernel at element q + m - before of x.
        start = (low - first) % apart
        count = len(range(first, shape[of_result], apart))
        if not count or start >= kernel.shape[of_kernel]:
            return None
        starts[of_kernel], steps[of_kernel] = start, apart
        padding.append(((low - first - start) // apart, 0))
        behind = shape[of_result] - 1 - first - (count - 1) * apart
        shape[of_result], widths[of_result] = count, (first, behind, apart - 1)
    part = kernel if set(steps) == {1} else slice_(kernel, starts, kernel.shape, steps)
    close = replace(conv, padding=tuple(padding), x_dilation=(1,) * len(phase))
    convolved = convolve(close, x, part, TensorSpec(tuple(shape), result.dtype))
    return pad(convolved, widths) if any(map(any, widths)) else convolved
