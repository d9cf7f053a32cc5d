"""Draws of complex numbers, Fourier transforms and linear algebra."""

from typing import Any

import torch
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family


@family
def complex_numbers(r: Draw) -> Made:
    shape = r.shape(1, 2)
    a, b = r.normal(*shape), r.normal(*shape)
    even = r.normal(2, 3, 4)
    name = r.pick(
        "abs",
        "angle",
        "conj",
        "exp",
        "log",
        "sqrt",
        "sin",
        "cos",
        "tanh",
        "reciprocal",
        "sgn",
        "square",
        "sigmoid",
        "neg",
        "isfinite",
        "sum",
        "mean",
        "prod",
        "cumsum",
        "real",
        "imag",
        "view_as_real",
        "conj_physical",
        "rsqrt",
        "tan",
        "sinh",
        "cosh",
        "isnan",
        "var",
    )
    function = getattr(torch, name)
    options = [
        (name, lambda a, b: function(torch.complex(a, b), *([0] if name == "cumsum" else [])), a, b),
        (name, lambda a, b: function(torch.complex(a, b), *([0] if name == "cumsum" else [])), a, b),
        ("mul", lambda a, b: torch.complex(a, b) * torch.complex(b, a + 1), a, b),
        ("div", lambda a, b: torch.complex(a, b) / torch.complex(b, a + 1), a, b),
        ("sub conj", lambda a, b: torch.complex(a, b) - torch.complex(b, a).conj(), a, b),
        ("mul by number", lambda a, b: torch.complex(a, b) * 2j + 1 - a, a, b),
        (
            "pow",
            lambda a, b: (
                torch.complex(a, b) ** 2,
                torch.complex(a, b) ** 3,
                torch.complex(a, b) ** -1,
                torch.complex(a, b) ** 0.5,
            ),
            a,
            b,
        ),
        ("polar", lambda a, b: torch.polar(a.exp(), b), a, b),
        ("rotary", _rotated, even, r.normal(3, 2)),
        ("matmul", lambda a, b: torch.complex(a, b) @ torch.complex(b, a).mH, r.normal(2, 3), r.normal(2, 3)),
        ("equal", lambda a, b: (torch.complex(a, b) == torch.complex(a, a), torch.complex(a, b) != a), a, b),
        ("where", lambda a, b: torch.where(a > 0, torch.complex(a, b), a), a, b),
        ("real write", lambda a, b: _written_real(torch.complex(a, b)), a, b),
        ("to complex", lambda a: a.to(torch.complex128).conj() * 1j, a),
        ("to complex64", lambda a: a.to(torch.complex64) * a.float(), a),
        ("view_as_complex", lambda x: torch.view_as_complex(x.reshape(2, 3, 2, 2)) * (1 + 2j), even),
        (
            "stack",
            lambda a, b: torch.view_as_real(torch.stack([torch.complex(a, b), torch.complex(b, a)], -1)),
            a,
            b,
        ),
        (
            "einsum",
            lambda a, b: torch.einsum("ij,kj->ik", torch.complex(a, b), torch.complex(b, a)),
            r.normal(2, 3),
            r.normal(2, 3),
        ),
        ("full", lambda a: torch.full((2,), 1j) * a.sum(), a),
        (
            "addition of alpha",
            lambda a, b: torch.add(torch.complex(a, b), torch.complex(b, b), alpha=2),
            a,
            b,
        ),
        ("index", lambda a, b: torch.complex(a, b).flip(0)[:1].reshape(-1).roll(1), a, b),
        ("norm", lambda a, b: (torch.complex(a, b).norm(), torch.complex(a, b).abs().pow(2).sum()), a, b),
    ]
    return r.pick(*options)


def _rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


def _written_real(z: torch.Tensor) -> torch.Tensor:
    z = z * 1
    z.real.mul_(2)
    return z


@family
def fourier(r: Draw) -> Made:
    shape = r.sizes(r.pick(1, 2, 3), 2, 6)
    axis, size, norm = r.axis(shape), r.pick(None, 3, 4, 5, 8), r.pick("backward", "ortho", "forward")
    a, b = r.normal(*shape), r.normal(*shape)
    fft = torch.fft
    name = r.pick(
        "fft",
        "ifft",
        "rfft",
        "irfft",
        "hfft",
        "ihfft",
        "fft2",
        "ifft2",
        "rfft2",
        "irfft2",
        "fftn",
        "ifftn",
        "rfftn",
        "irfftn",
        "shift",
        "stft",
    )
    words = f"{name} n={size} axis={axis} norm={norm}"
    function = getattr(fft, name, None)
    match name:
        case "shift":
            return (
                "fftshift",
                lambda a: (
                    fft.fftshift(a, axis),
                    fft.ifftshift(a),
                    fft.fftfreq(5) * a.sum(),
                    fft.rfftfreq(6) * a.sum(),
                ),
                a,
            )
        case "rfft" | "ihfft":
            return words, lambda a: function(a, size, axis, norm), a
        case "fft" | "ifft" | "irfft" | "hfft":
            if r.flag():
                return f"{words} of reals", lambda a: function(a, size, axis, norm), a
            return words, lambda a, b: function(torch.complex(a, b), size, axis, norm), a, b
        case "rfft2" | "rfftn":
            return words, lambda a: function(a, norm=norm), a
        case "stft":
            centre = r.flag()
            return (
                f"stft {centre}",
                lambda a: torch.stft(
                    a,
                    4,
                    2,
                    window=torch.hann_window(4, dtype=torch.float64),
                    center=centre,
                    return_complex=True,
                ),
                r.normal(2, 12),
            )
    return words, lambda a, b: function(torch.complex(a, b), norm=norm), a, b


@family
def linear_algebra(r: Draw) -> Made:
    n, k = r.integer(1, 4), r.integer(1, 3)
    lead = r.pick((), (2,), (2, 1))
    a = r.normal(*lead, n, n)
    b = r.normal(*lead, n, k)
    wide = r.normal(*lead, n, n + 1)
    left, upper, unit = r.flag(), r.flag(), r.flag()
    spd = lambda a: a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)  # noqa: E731
    linalg = torch.linalg
    other = r.normal(*lead, k, n) if not left else b
    order = r.pick(1, 2, 3, float("inf"), 0.5, 0)
    return r.pick(
        (f"cholesky {upper}", lambda a: linalg.cholesky(spd(a), upper=upper), a),
        ("old cholesky", lambda a: torch.cholesky(spd(a)), a),
        ("cholesky_solve", lambda a, b: torch.cholesky_solve(b, linalg.cholesky(spd(a))), a, b),
        ("cholesky_inverse", lambda a: torch.cholesky_inverse(linalg.cholesky(spd(a))), a),
        (f"solve {left}", lambda a, b: linalg.solve(a, b, left=left), a, other),
        ("solve vector", lambda a, b: linalg.solve(a, b), r.normal(n, n), r.normal(n)),
        ("inv", lambda a: linalg.inv(a), a),
        ("inverse", lambda a: torch.inverse(a), a),
        ("det", lambda a: linalg.det(a), a),
        ("slogdet", lambda a: linalg.slogdet(a), a),
        ("logdet", lambda a: torch.logdet(spd(a)), a),
        (
            f"solve_triangular {upper} {left} {unit}",
            lambda a, b: linalg.solve_triangular(
                a.triu() if upper else a.tril(), b, upper=upper, left=left, unitriangular=unit
            ),
            a,
            other,
        ),
        (
            "triangular_solve",
            lambda a, b: torch.triangular_solve(b, a, upper)[0],
            r.normal(n, n),
            r.normal(n, k),
        ),
        ("qr", lambda a: linalg.qr(a), r.normal(*lead, n + 1, n)),
        ("qr square", lambda a: linalg.qr(a), a),
        ("svdvals", lambda a: linalg.svdvals(a), wide),
        ("svd", lambda a: _without_signs(*linalg.svd(a, full_matrices=False)), wide),
        ("eigvalsh", lambda a: linalg.eigvalsh(spd(a)), a),
        ("eigh", lambda a: _outer(*linalg.eigh(a + a.mT)), a),
        ("pinv", lambda a: linalg.pinv(a), wide),
        ("lstsq", lambda a, b: linalg.lstsq(a.mT, b.sum(-1, keepdim=True).expand(*b.shape[:-1], 1))[0], a, b),
        ("matrix_exp", lambda a: linalg.matrix_exp(a), a),
        ("trace", lambda a: a.diagonal(dim1=-2, dim2=-1).sum(-1), a),
        ("torch.trace", lambda a: torch.trace(a), r.normal(n, n)),
        ("lu_factor", lambda a: linalg.lu_factor(a), a),
        ("lu", lambda a: linalg.lu(a), a),
        (
            f"cdist {order}",
            lambda a, b: torch.cdist(a, b, p=float(order)),
            r.normal(*lead, 3, n),
            r.normal(*lead, 2, n),
        ),
        (f"pdist {order}", lambda a: torch.pdist(a, float(order)), r.normal(3, n)),
        (
            "cdist far",
            lambda a, b: torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist"),
            r.normal(3, n),
            r.normal(2, n),
        ),
        ("matrix_rank", lambda a: linalg.matrix_rank(a), a),
        ("cond", lambda a: linalg.cond(a), a),
        ("tensorinv", lambda a: linalg.tensorinv(a, 1), r.normal(n, n)),
        ("vecdot", lambda a: linalg.vecdot(a, 2 * a, dim=-2), a),
        ("householder", lambda a: linalg.householder_product(a, a[..., 0, :]), r.normal(n + 1, n)),
    )


def _without_signs(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> Any:
    return (u * s.exp()[..., None, :]) @ vh, s


def _outer(values: torch.Tensor, vectors: torch.Tensor) -> Any:
    return (vectors * values.exp()[..., None, :]) @ vectors.mT, values
