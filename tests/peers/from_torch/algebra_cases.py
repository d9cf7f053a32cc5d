"""Uses of complex numbers, Fourier transforms, linear algebra, and of what the order of elements finds."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.peers.from_torch.cases import X3, Case, I, J, X, Y, Z, integers, normal

aten, linalg = torch.ops.aten, torch.linalg


def parts(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return z.real, z.imag


COMPLEX = [
    Case(
        "complex.default view_as_real.default _conj.default",
        lambda x, y: (
            *parts(torch.complex(x, y) * torch.complex(y, x).conj().resolve_conj()),
            *parts(torch.conj_physical(torch.complex(x, y)).resolve_neg()),
            torch.view_as_real(torch.complex(x, y).exp()),
        ),
        (X, Y),
    ),
    Case(
        "_neg_view.default _conj_physical.default",
        lambda x: (aten._neg_view(x) + 0, aten._conj_physical(x)),
        (X,),
    ),
    Case("polar.default view_as_complex.default", lambda x, a: rotated(x, a), (X3, normal(3, 2))),
    Case(
        "angle.default sgn.default",
        lambda x, y: (*parts(torch.complex(x, y).sgn()), torch.complex(x, y).angle(), x.angle(), x.sgn()),
        (Z, Z[::-1].copy()),
    ),
    Case(
        "abs.default linalg_vector_norm.default",
        lambda x, y: (torch.complex(x, y).abs(), torch.complex(x, y).norm()),
        (X, Y),
    ),
    Case(
        "_fft_r2c.default",
        lambda x: (*parts(torch.fft.rfft(x, norm="ortho")), *parts(torch.fft.fft(x, 3, 0))),
        (X,),
    ),
    Case("_fft_c2c.default", lambda x, y: parts(torch.fft.ifft2(torch.fft.fft(torch.complex(x, y)))), (X, Y)),
    Case(
        "_fft_c2r.default",
        lambda x, y: (torch.fft.irfft(torch.complex(x, y), 5), torch.fft.irfft2(torch.complex(x, y))),
        (X, Y),
    ),
    Case(
        "fft_fftfreq.default fft_rfftfreq.default",
        lambda x: (x * torch.fft.fftfreq(4, dtype=torch.float64), torch.fft.rfftfreq(5, 0.5)),
        (X,),
    ),
]


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


SQUARE, RIGHT = normal(2, 4, 4), normal(2, 4, 3)


def definite(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)


def old_triangular(a: torch.Tensor, b: torch.Tensor) -> Any:
    return torch.triangular_solve(b, a)[0], torch.triangular_solve(b, a, False, True)[0]


LINEAR_ALGEBRA = [
    Case(
        "linalg_cholesky.default linalg_cholesky_ex.default cholesky.default cholesky_solve.default cholesky_inverse.default",
        lambda a, b: (
            linalg.cholesky(definite(a)),
            linalg.cholesky(definite(a), upper=True),
            linalg.cholesky_ex(definite(a))[0],
            torch.cholesky(definite(a)),
            torch.cholesky_solve(b, linalg.cholesky(definite(a))),
            torch.cholesky_inverse(linalg.cholesky(definite(a))),
        ),
        (SQUARE, RIGHT),
    ),
    Case(
        "linalg_solve.default _linalg_solve_ex.default linalg_inv.default linalg_inv_ex.default inverse.default",
        lambda a, b: (
            linalg.solve(a, b),
            linalg.solve(a, b.mT, left=False),
            linalg.solve(a[0], b[0, :, 0]),
            linalg.solve_ex(a, b)[0],
            linalg.inv(a),
            linalg.inv_ex(a)[0],
            torch.inverse(a),
        ),
        (SQUARE, RIGHT),
    ),
    Case(
        "_linalg_det.default _linalg_slogdet.default",
        lambda a: (linalg.det(a), *linalg.slogdet(a), a.logdet()),
        (SQUARE,),
    ),
    Case(
        "linalg_solve_triangular.default triangular_solve.default",
        lambda a, b: (
            linalg.solve_triangular(a.tril(), b, upper=False),
            linalg.solve_triangular(a, b.mT, upper=True, left=False, unitriangular=True),
            *old_triangular(a, b),
        ),
        (SQUARE + 2 * np.eye(4), RIGHT),
    ),
    Case(
        "cdist.default _cdist_forward.default",
        lambda x, y: (
            *(torch.cdist(x, y, p) for p in (0.5, 1.0, 2.0, np.inf)),
            aten._cdist_forward(x.detach(), y.detach(), 2.0, None),
        ),
        (X, Y),
    ),
    Case(
        "pdist.default _pdist_forward.default",
        lambda x: (torch.pdist(x), aten._pdist_forward(x.detach())),
        (X,),
    ),
    Case("linalg_qr.default", lambda a, b: (*linalg.qr(a), *linalg.qr(b)), (SQUARE, RIGHT)),
    Case(
        "_linalg_eigh.default",
        lambda a: (linalg.eigvalsh(definite(a)), linalg.eigh(definite(a))[1].abs()),
        (SQUARE,),
    ),
    Case(
        "_linalg_svd.default",
        lambda b: (linalg.svdvals(b), *(t.abs() for t in linalg.svd(b, full_matrices=False))),
        (RIGHT,),
    ),
    Case(
        "linalg_pinv.atol_rtol_tensor linalg_pinv.atol_rtol_float",
        lambda b: (linalg.pinv(b), linalg.pinv(b, atol=1e-3, rtol=1e-3)),
        (RIGHT,),
    ),
]
ORDERING = [
    Case(
        "cummax.default cummin.default",
        lambda x, i, z: (*x.cummax(1), *i.cummin(0), *z.cummax(0), *x[0, 0].cummin(0)),
        (X, I, Z),
    ),
    Case(
        "kthvalue.default median.default median.dim nanmedian.default nanmedian.dim",
        lambda x, z: (
            *x.kthvalue(2, 0, True),
            x.median(),
            z.median(),
            *x.median(1),
            x.nanmedian(),
            *x.nanmedian(0, True),
            torch.tensor([1.0, np.nan, 3.0]).nanmedian(0)[0],
            torch.tensor([1.0, np.nan, 3.0]).median(),
        ),
        (X, np.array([1.0, 2, 2, 2, 3])),
    ),
    Case("mode.default", lambda j: j.mode(1), (J,)),
    Case(
        "searchsorted.Tensor searchsorted.Scalar bucketize.Tensor bucketize.Scalar",
        lambda x, z: (
            torch.searchsorted(z, x),
            torch.searchsorted(z, x, right=True),
            torch.searchsorted(z.expand(3, -1), x, side="right"),
            torch.searchsorted(z.flip(0), 1.0, sorter=torch.arange(4, -1, -1)),
            torch.bucketize(x.round(), z, right=True),
            torch.bucketize(0.5, z, out_int32=True),
        ),
        (X, Z),
    ),
]
BAGS = np.array([0, 2, 2, 5])
MORE = [
    Case(
        "_embedding_bag.default _embedding_bag_forward_only.default",
        lambda w, i, o, p: (
            F.embedding_bag(i, w, o),
            F.embedding_bag(i, w, o, mode="sum", padding_idx=1, include_last_offset=True),
            F.embedding_bag(i, w, o, mode="max"),
            F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p),
            F.embedding_bag(i.reshape(1, -1), w.detach()),
        ),
        (normal(5, 3), integers(0, 5, 7), BAGS, normal(7)),
    ),
    Case(
        "scatter.reduce scatter.value_reduce index_reduce.default put.default",
        lambda x, i, y: (
            x.detach().scatter(1, i, y.detach(), reduce="multiply"),
            x.detach().scatter(1, i, 2.0, reduce="add"),
            x.index_reduce(0, i[:, 0], y, "mean"),
            x.put(i, y[:, :2], accumulate=True),
        ),
        (X, integers(0, 3, 3, 2), Y),
    ),
    Case(
        "copysign.Tensor copysign.Scalar signbit.default fmax.default fmin.default",
        lambda x, y: (
            torch.copysign(x, y),
            x.copysign(-0.0),
            (-0.0 * x).signbit(),
            x.fmax(y),
            x.fmin(y),
        ),
        (X, Y),
    ),
    Case(
        "hardsigmoid.default hardswish.default",
        lambda x, z: (F.hardsigmoid(x.detach()), F.hardswish(x), F.hardsigmoid(z)),
        (np.array([-4.0, -3, -1, 0, 2, 3, 5]), np.array([-4.0, -3, 3, 5])),
    ),
    Case("rrelu_with_noise_functional.default", lambda x: F.rrelu(x), (Z,)),
    Case(
        "addbmm.default _trilinear.default",
        lambda x, y, c, w: (torch.addbmm(c, x, y, beta=0.5, alpha=2), F.bilinear(x[0], x[1], w)),
        (X3, normal(2, 4, 5), normal(3, 5), normal(2, 4, 4)),
    ),
    Case(
        "as_strided.default as_strided_scatter.default diagonal_scatter.default tril_indices.default triu_indices.default",
        lambda x, y: (
            x.as_strided((2, 3), (1, 2), 1),
            torch.as_strided_scatter(x.detach(), y[0, :2], (2,), (3,), 1),
            torch.diagonal_scatter(x, y[0, :3], 1),
            torch.tril_indices(3, 4, -1),
            torch.triu_indices(3, 4, 1),
            filled_through_transpose(x),
        ),
        (X, Y),
    ),
    Case("prims.copy_strided.default", lambda x: filled_through_transpose(x), (X,)),
    Case(
        "_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec",
        lambda x, y, z: tuple(F.interpolate(t, scale_factor=0.6, mode="nearest-exact") for t in (x, y, z)),
        (normal(2, 4, 9), normal(2, 2, 7, 6), normal(1, 2, 4, 5, 4)),
    ),
    Case(
        "upsample_bicubic2d.vec _upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec upsample_nearest2d.vec",
        lambda x: (
            F.interpolate(x, scale_factor=1.7, mode="bicubic"),
            F.interpolate(x, (3, 4), mode="bilinear", antialias=True),
            F.interpolate(x, (3, 4), mode="bicubic", antialias=True),
            F.interpolate(x, scale_factor=0.6),
        ),
        (normal(2, 2, 7, 6),),
    ),
    Case(
        "avg_pool1d.default avg_pool2d.default",
        lambda x: (F.avg_pool1d(x, 3, 2, 1), F.lp_pool1d(x.abs(), 2, 3), F.avg_pool2d(x[None], 2)),
        (normal(4, 9),),
    ),
    Case(
        "adaptive_max_pool2d.default adaptive_max_pool3d.default",
        lambda x: (*F.adaptive_max_pool2d(x.round(), 3, True), *F.adaptive_max_pool3d(x, 2, True)),
        (normal(2, 4, 5, 6),),
    ),
]


def filled_through_transpose(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x.t().index_fill_(0, torch.tensor([0]), 2.0)
    return x
