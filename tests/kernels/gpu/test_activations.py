"""GELU by Triton, interpreted, beside float64."""

import numpy as np

from pcp.kernels.activations.triton import Gelu


def test_it_computes_the_activation_and_its_gradient() -> None:
    rng = np.random.default_rng(8)
    rows, width = 3, 1280
    x, g = (rng.normal(0, 3, (rows, width)).astype(np.float32) for _ in range(2))
    x[0, :3] = -40, 40, 0
    bias = rng.normal(size=width).astype(np.float32)
    root, cubic = np.sqrt(2 / np.pi), 0.044715
    biased = x.astype(np.float64) + bias
    tanh = np.tanh(root * (biased + cubic * biased**3))
    slope = (1 - tanh**2) * root * (1 + 3 * cubic * biased**2)
    exact = biased / 2 * (1 + tanh)
    of_x = g * ((1 + tanh) / 2 + biased / 2 * slope)
    for operands, expected in (((), exact), ((g.ravel(),), of_x)):
        for rounded, error in ((False, 1e-6), (True, 3e-3)):
            (found,) = Gelu(rounded, interpreted=True)(x.ravel(), bias, *operands)
            assert found.dtype.name == ("bfloat16" if rounded else "float32")
            away = np.asarray(found, np.float64) - expected.ravel()
            assert np.linalg.norm(away) < error * np.linalg.norm(expected)
            assert np.abs(away).max() <= 2 * error * np.abs(expected).max()
