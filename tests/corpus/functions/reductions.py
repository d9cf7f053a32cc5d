"""Sums, products, extremes, statistics, cumulative forms, orders."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp

from tests.corpus.arguments import distinct, normal, positive, together
from tests.corpus.case import Case

_M = normal((3, 4))
_D = distinct((3, 4))


def _reduced(body, start):
    return lambda x: lax.reduce(x, np.float64(start), body, (1,))


def _two_results(x, y):
    def body(a, b):
        return a[0] + b[0], jnp.maximum(a[1], b[1])

    return lax.reduce((x, y), (np.float64(0), np.float64(-np.inf)), body, (0,))


CASES = [
    Case("sum", lambda x: x.sum(0) * x.sum(), _M, order=2),
    Case("mean", lambda x: x.mean((0, 1)) * x, _M, order=2),
    Case("product", lambda x: x.prod(1), _M, order=2),
    Case("product_with_zero", lambda x: (x * np.array([1.0, 0.0, 1.0, 1.0])).prod(1) + x.sum(1), _M),
    Case("max", lambda x: x.max(1), _D),
    Case("min_keepdims", lambda x: x.min(0, keepdims=True) * x, _D),
    Case("max_of_all", lambda x: x.max() * x, _D),
    Case("max_with_ties", lambda x: jnp.round(x).max(1) * x.sum() + jnp.tile(x, 2).max(1), _D),
    Case("variance", lambda x: x.var(1), _M, order=2),
    Case("standard_deviation", lambda x: x.std(0, ddof=1), _M, order=2),
    Case(
        "weighted_average",
        lambda x, w: jnp.average(x, axis=1, weights=w),
        together(_M, positive((4,))),
        order=2,
    ),
    Case("nan_sum", lambda x: jnp.nansum(jnp.where(x > 1, jnp.nan, x), axis=0), _M),
    Case("nan_mean", lambda x: jnp.nanmean(jnp.where(x > 1, jnp.nan, x)), _M),
    Case("masked_mean", lambda x: jnp.mean(x, where=x > 0) * x, _M),
    Case("logsumexp", lambda x: logsumexp(x, 1), _M, order=2),
    Case("logsumexp_weighted", lambda x, b: logsumexp(x, 0, b=b), together(_M, positive((3, 4))), order=2),
    Case(
        "logmeanexp",
        lambda x: jax.nn.logmeanexp(x, 1) if hasattr(jax.nn, "logmeanexp") else logsumexp(x, 1) - jnp.log(4),
        _M,
    ),
    Case("norm_1", lambda x: jnp.abs(x).sum(1), _M),
    Case("norm_2", lambda x: jnp.linalg.norm(x, axis=1), _M, order=2),
    Case("norm_3", lambda x: jnp.linalg.norm(x, 3, axis=0), _M),
    Case("norm_inf", lambda x: jnp.linalg.norm(x, jnp.inf, axis=1), _D),
    Case("norm_frobenius", jnp.linalg.norm, _M, order=2),
    Case("cumsum", lambda x: jnp.cumsum(x, 1) ** 2, _M, order=2),
    Case("cumsum_reversed", lambda x: lax.cumsum(x, 0, reverse=True) * x, _M),
    Case("cumprod", lambda x: jnp.cumprod(x, 1), _M, order=2),
    Case("cummax", lambda x: lax.cummax(x, 1), _D),
    Case("cummin_reversed", lambda x: lax.cummin(x, 0, reverse=True), _D),
    Case("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), _M, order=2),
    Case("cumulative_mean", lambda x: jnp.cumsum(x) / jnp.arange(1, 13), _M),
    Case("argmax_one_hot", lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 4, dtype=x.dtype) * x, _D),
    Case("argmin_position", lambda x: jnp.argmin(x, 0) * x.sum(0), _D),
    Case("sort", lambda x: jnp.sort(x, 1) * jnp.arange(4.0), _D, order=2),
    Case("sort_descending", lambda x: jnp.sort(x, 0, descending=True) * jnp.arange(3.0)[:, None], _D),
    Case(
        "sort_by_key",
        lambda x, k: lax.sort((k, x), dimension=1, num_keys=1)[1] * jnp.arange(4.0),
        together(_M, _D),
    ),
    Case(
        "sort_by_two_keys",
        lambda x, k: lax.sort((jnp.floor(k), -k, x), dimension=1, num_keys=2),
        together(_M, _D),
    ),
    Case("argsort_read", lambda x: jnp.take_along_axis(x**2, jnp.argsort(x, 1), 1) * jnp.arange(4.0), _D),
    Case("top_k", lambda x: lax.top_k(x, 2)[0] * jnp.array([1.0, 3.0]), distinct((3, 6)), order=2),
    Case("top_k_mask", lambda x: jnp.where(x >= lax.top_k(x, 2)[0][:, -1:], x, 0).sum(1), distinct((3, 6))),
    Case("approximate_max", lambda x: lax.approx_max_k(x, 2)[0], distinct((3, 6))),
    Case("median", lambda x: jnp.median(x, 1), distinct((3, 5))),
    Case("median_even", lambda x: jnp.median(x, 0), distinct((4, 3))),
    Case("quantile", lambda x: jnp.quantile(x, jnp.array([0.1, 0.6]), axis=1), distinct((3, 5))),
    Case("percentile_nearest", lambda x: jnp.percentile(x, 30, axis=0, method="nearest"), distinct((5, 3))),
    Case("peak_to_peak", lambda x: jnp.ptp(x, axis=1), _D),
    Case("trimmed_mean", lambda x: jnp.sort(x, 1)[:, 1:-1].mean(1), distinct((3, 6))),
    Case("covariance", jnp.cov, normal((3, 6)), order=2),
    Case("correlation", jnp.corrcoef, normal((3, 6))),
    Case("reduce_and", lambda x: x * (x > -9).all() + x**2 * (x > 1).any(), _M),
    Case("reduce_general_body", _reduced(lambda a, b: a + b + a * b, 0.0), _M, order=2),
    Case("reduce_logaddexp", _reduced(jnp.logaddexp, -1e3), _M),
    Case("reduce_absolute_larger", _reduced(lambda a, b: jnp.where(abs(a) > abs(b), a, b), 0.0), _D),
    Case("reduce_two_results", _two_results, together(_M, _D)),
    Case("softmax_entropy", lambda x: -(jax.nn.softmax(x) * jax.nn.log_softmax(x)).sum(-1), _M, order=2),
    Case("earth_mover", lambda x, y: jnp.abs(jnp.sort(x) - jnp.sort(y)).sum(-1), distinct((3, 5), (3, 5))),
    Case("rank_correlation", lambda x, y: (jnp.argsort(jnp.argsort(x)) * y).sum(), together(_D, _M)),
    Case(
        "histogram_of_weights",
        lambda x, w: jnp.histogram(x, bins=4, range=(-2, 2), weights=w)[0],
        normal((9,), (9,)),
    ),
]
