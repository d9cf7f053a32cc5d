"""A new operation with its derivative: the discrete Fourier transform, which StableHLO has and PCP has no function for.

python examples/06_new_operation.py
"""

import numpy as np

import pcp
from pcp.autodiff import register_rule
from pcp.tensor import ShapeMismatch, as_tensor, emit


def fft(x: pcp.Tensor) -> pcp.Tensor:
    """The discrete Fourier transform along the last axis, of complex numbers of any shape of rank 1 or more."""
    tensor = as_tensor(x)
    if not tensor.shape:
        raise ShapeMismatch("fft: a scalar was given; expected at least one axis")
    attributes = {"fft_type": "#stablehlo<fft_type FFT>", "fft_length": (tensor.shape[-1],)}
    return emit("fft", (tensor,), (tensor.spec,), attributes)


def energy_above(x: pcp.Tensor, first: int) -> pcp.Tensor:
    """The energy of a real signal in all frequencies from `first` up to the middle."""
    spectrum = fft(pcp.ops.complex(x, 0.0))
    power = pcp.square(pcp.ops.real(spectrum)) + pcp.square(pcp.ops.imag(spectrum))
    return power[first : x.shape[0] // 2].sum()


def main() -> None:
    """Use the operation, give it a derivative, compare that with PCP's own, and smooth a signal by gradient descent."""
    rng = np.random.default_rng(0)
    signal = np.sin(np.arange(64) * 2 * np.pi / 32) + 0.5 * rng.standard_normal(64)
    program = pcp.trace(lambda x: energy_above(x, 6), pcp.spec((64,), "f64"))
    expected = (np.abs(np.fft.fft(signal)) ** 2)[6:32].sum()
    print("agrees with NumPy:", bool(np.isclose(pcp.plan(program).run(signal), expected)))

    # PCP has a rule for this operation already; the one that is registered takes its place.
    by_default = pcp.plan(pcp.grad(program)).run(signal)

    # The transform is linear and its matrix symmetric, so the cotangent of x is the transform of that of y.
    register_rule("fft", (lambda g, _y, _x: fft(g),))

    gradient = pcp.plan(pcp.grad(program))
    print("agrees with PCP's own rule:", bool(np.allclose(gradient.run(signal), by_default)))
    direction = rng.standard_normal(64)
    run = pcp.plan(program).run
    difference = (float(run(signal + 1e-5 * direction)) - float(run(signal - 1e-5 * direction))) / 2e-5
    print(
        "agrees with differences:",
        bool(np.isclose(np.vdot(gradient.run(signal), direction), difference, rtol=1e-6)),
    )

    smooth = signal
    for _ in range(20):
        smooth = smooth - 0.002 * np.asarray(gradient.run(smooth))
    print(f"energy above: {float(run(signal)):.2f} before, {float(run(smooth)):.4f} after 20 steps")


if __name__ == "__main__":
    main()
