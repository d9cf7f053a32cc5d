"""Complex arithmetic and Fourier transforms; gradients for complex arguments are JAX's transposes, not conjugated."""

import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from tests.corpus.arguments import complex_normal, normal, together
from tests.corpus.case import Case, Maker

SHAPE = (3, 4)
_Z = complex_normal(SHAPE)
_ZZ = complex_normal(SHAPE, SHAPE)
_SIGNAL = normal((3, 8))
_COMPLEX_SIGNAL = complex_normal((3, 8))


def _shifted(*shapes: tuple[int, ...]) -> Maker:
    """Matrices of complex numbers far from singular ones."""
    made = complex_normal(*shapes)
    return lambda rng: tuple(a + 4 * jnp.eye(a.shape[-1]) for a in made(rng))


CASES = [
    Case("real_part", lambda z: z.real * z.imag, _Z, order=2),
    Case("made_of_parts", lambda x, y: lax.complex(x, y) ** 2, normal(SHAPE, SHAPE), order=2),
    Case("modulus", jnp.abs, _Z, order=2),
    Case("angle", jnp.angle, _Z),
    Case("conjugate", lambda z: z * jnp.conj(z) * z, _Z, order=2),
    Case("product", lambda z, w: z * w - w, _ZZ, order=2),
    Case("quotient", lambda z, w: z / w, _ZZ, order=2),
    Case("real_times_complex", lambda x, z: x * z, together(normal(SHAPE), _Z), order=2),
    Case("exp", jnp.exp, _Z, order=2),
    Case("log", jnp.log, _Z, order=2),
    Case("sin", jnp.sin, _Z, order=2),
    Case("cosh", jnp.cosh, _Z),
    Case("tanh", jnp.tanh, _Z, order=2),
    Case("tan", jnp.tan, _Z),
    Case("sqrt", jnp.sqrt, _Z, order=2),
    Case("rsqrt", lax.rsqrt, _Z),
    Case("reciprocal", jnp.reciprocal, _Z),
    Case("square", jnp.square, _Z, order=2),
    Case("expm1", jnp.expm1, _Z),
    Case("log1p", jnp.log1p, _Z),
    Case("sigmoid", lambda z: 1 / (1 + jnp.exp(-z)), _Z),
    Case("logistic", lax.logistic, _Z),
    Case("integer_power", lambda z: z**3, _Z, order=2),
    Case("power", lambda z, w: z**w, _ZZ),
    Case(
        "sign",
        lambda z: jnp.sign(z) * z,
        _Z,
        reference=lambda z: z / abs(z) * z,
        note="JAX takes its derivative for zero",
    ),
    Case("arcsinh", jnp.arcsinh, _Z),
    Case("matrix_product", lambda z, w: z @ w.T, _ZZ, order=2),
    Case("adjoint_product", lambda z, w: jnp.einsum("ij,kj->ik", z.conj(), w), _ZZ),
    Case("sum_and_mean", lambda z: z.sum(0) * z.mean(), _Z),
    Case("product_of_all", lambda z: z.prod(1), _Z),
    Case("cumulative_product", lambda z: jnp.cumprod(z, 1), _Z),
    Case("norm", jnp.linalg.norm, _Z, order=2),
    Case("roots_of_unity", lambda x: jnp.exp(1j * x) * x, normal(SHAPE), order=2),
    Case("rotary_embedding", lambda x, a: _rotated(x, a), normal((3, 4), (3, 2)), order=2),
    Case("solve", jnp.linalg.solve, together(_shifted((3, 3)), complex_normal((3, 2)))),
    Case("inverse", jnp.linalg.inv, _shifted((3, 3))),
    Case(
        "triangular_solve",
        lambda a, b: solve_triangular(a, b, lower=True, trans="C"),
        together(_shifted((3, 3)), complex_normal((3, 2))),
    ),
    Case("cholesky", lambda z: jnp.linalg.cholesky(z @ z.conj().T + 3 * jnp.eye(3)), complex_normal((3, 3))),
    Case("log_determinant", lambda z: jnp.linalg.slogdet(z)[1], _shifted((3, 3))),
    Case(
        "eigenvalues",
        lambda z: jnp.linalg.eigvalsh((z + z.conj().T) / 2 + jnp.diag(jnp.arange(3.0) * 3)),
        complex_normal((3, 3)),
    ),
    Case("gather", lambda z: z[jnp.array([0, 2, 2])] * z, _Z),
    Case("scatter", lambda z, w: z.at[jnp.array([0, 2, 2])].add(w), _ZZ),
    Case(
        "convolution",
        lambda z, w: lax.conv_general_dilated(z, w, (1,), "SAME"),
        complex_normal((2, 3, 6), (4, 3, 3)),
    ),
    Case(
        "scan", lambda z, w: lax.scan(lambda c, v: (c * v + w, c), z[0], z), complex_normal((4,), ()), order=2
    ),
    Case("select", lambda z, w: jnp.where(z.real > 0, z, z * w), _ZZ),
    Case("quantum_state", lambda a, z: _evolved(a, z), together(normal((3,)), complex_normal((4,))), order=2),
    Case(
        "mandelbrot",
        lambda c: lax.fori_loop(0, 4, lambda _, z: z * z + c, c),
        lambda rng: (complex_normal(SHAPE)(rng)[0] / 3,),
    ),
    Case("fft", lambda z: jnp.fft.fft(z) * z, _COMPLEX_SIGNAL, order=2),
    Case("inverse_fft", lambda z: jnp.fft.ifft(z, axis=0), _COMPLEX_SIGNAL, order=2),
    Case("fft_of_reals", lambda x: jnp.fft.fft(x), _SIGNAL, order=2),
    Case("real_fft", jnp.fft.rfft, _SIGNAL, order=2),
    Case("real_fft_odd", jnp.fft.rfft, normal((3, 7)), order=2),
    Case("inverse_real_fft", jnp.fft.irfft, complex_normal((3, 5)), order=2),
    Case("inverse_real_fft_odd", lambda z: jnp.fft.irfft(z, n=7), complex_normal((3, 4)), order=2),
    Case("two_dimensional_fft", jnp.fft.fft2, complex_normal((3, 4)), order=2),
    Case("two_dimensional_real_fft", jnp.fft.rfft2, normal((4, 6)), order=2),
    Case("three_dimensional_inverse", jnp.fft.irfftn, complex_normal((2, 3, 3))),
    Case("padded_fft", lambda x: jnp.fft.fft(x, n=12), _SIGNAL),
    Case("orthonormal_fft", lambda x: jnp.fft.rfft(x, norm="ortho"), _SIGNAL),
    Case("shifted_spectrum", lambda x: jnp.fft.fftshift(jnp.abs(jnp.fft.fft(x)) ** 2), _SIGNAL, order=2),
    Case(
        "fft_convolution",
        lambda x, k: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(k, n=8), n=8),
        normal((3, 8), (4,)),
        order=2,
    ),
    Case("spectral_derivative", lambda x: jnp.fft.ifft(1j * jnp.arange(8) * jnp.fft.fft(x)).real, _SIGNAL),
    Case(
        "short_time_spectrum",
        lambda x: jnp.abs(jnp.fft.rfft(x[jnp.arange(3)[:, None] * 2 + jnp.arange(4)] * jnp.hanning(6)[1:-1])),
        normal((8,)),
    ),
    Case(
        "fourier_operator",
        lambda x, w: jnp.fft.irfft(jnp.einsum("ci,cdi->di", jnp.fft.rfft(x)[:, :3], w), n=8),
        together(normal((2, 8)), complex_normal((2, 3, 3))),
        order=2,
    ),
]


def _rotated(x, angle):
    pairs = lax.complex(x[:, ::2], x[:, 1::2]) * jnp.exp(1j * angle)
    return jnp.stack([pairs.real, pairs.imag], -1).reshape(3, 4)


def _evolved(angles, state):
    for angle in angles:
        gate = jnp.array([[jnp.cos(angle), -1j * jnp.sin(angle)], [-1j * jnp.sin(angle), jnp.cos(angle)]])
        state = jnp.einsum("ij,jk->ik", gate, state.reshape(2, 2)).T.reshape(4)
    return jnp.abs(state) ** 2
