"""Special functions: of statistics, of Bessel, of gamma; most arrive as CHLO or as long series."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special, stats

from tests.corpus.arguments import normal, positive, together, uniform
from tests.corpus.case import Case

SHAPE = (3, 4)
_UNIT = uniform(0.05, 0.95, SHAPE)
_ANY = normal(SHAPE)
_POSITIVE = positive(SHAPE)

CASES = [
    Case("erf", special.erf, _ANY, order=2),
    Case("erfc", special.erfc, _ANY, order=2),
    Case("erfinv", special.erfinv, uniform(-0.9, 0.9, SHAPE), order=2),
    Case("gammaln", special.gammaln, _POSITIVE, order=2),
    Case("digamma", special.digamma, _POSITIVE, order=2),
    Case("polygamma", lambda x: special.polygamma(2, x), _POSITIVE, order=2),
    Case("zeta", lambda x, q: special.zeta(3.5, q) * x, positive(SHAPE, SHAPE)),
    Case("gamma", special.gamma, _POSITIVE),
    Case("factorial", special.factorial, _POSITIVE),
    Case("betaln", special.betaln, positive(SHAPE, SHAPE), order=2),
    Case("multigammaln", lambda x: special.multigammaln(x + 2, 3), _POSITIVE),
    Case("bessel_i0", special.i0, _ANY, order=2),
    Case("bessel_i0e", special.i0e, _ANY, order=2),
    Case("bessel_i1", special.i1, _ANY),
    Case("bessel_i1e", special.i1e, _ANY),
    Case("ndtr", special.ndtr, _ANY, order=2),
    Case("log_ndtr", special.log_ndtr, _ANY),
    Case("ndtri", special.ndtri, _UNIT),
    Case("logit", special.logit, _UNIT, order=2),
    Case("expit", special.expit, _ANY, order=2),
    Case("xlogy", special.xlogy, positive(SHAPE, SHAPE), order=2),
    Case("xlog1py", special.xlog1py, positive(SHAPE, SHAPE)),
    Case("entr", special.entr, _POSITIVE, order=2),
    Case("rel_entr", special.rel_entr, positive(SHAPE, SHAPE)),
    Case("kl_div", special.kl_div, positive(SHAPE, SHAPE)),
    Case("boxcox", lambda x, y: jnp.expm1(y * jnp.log1p(x)) / y, positive(SHAPE, SHAPE)),
    Case("exponential_integral", special.exp1, _POSITIVE),
    Case("incomplete_beta_in_x", lambda x: special.betainc(1.3, 2.1, x), _UNIT),
    Case("incomplete_gamma_in_x", lambda x: special.gammainc(1.7, x), _POSITIVE),
    Case("incomplete_gamma_in_a", lambda a: special.gammainc(a, 1.3), _POSITIVE),
    Case("upper_incomplete_gamma", lambda x: special.gammaincc(2.2, x), _POSITIVE),
    Case("log_softmax", lambda x: jax.nn.log_softmax(x, -1), _ANY, order=2),
    Case("softmax", lambda x: jax.nn.softmax(x, 0), _ANY, order=2),
    Case("masked_softmax", lambda x: jax.nn.softmax(x, where=jnp.arange(4) < 3), _ANY),
    Case("sinh_arcsinh", lambda x, s: jnp.sinh(s * jnp.arcsinh(x)), together(_ANY, _POSITIVE), order=2),
    Case(
        "normal_log_density",
        lambda x, m, s: stats.norm.logpdf(x, m, s),
        together(normal(SHAPE, SHAPE), _POSITIVE),
        order=2,
    ),
    Case(
        "normal_distribution",
        lambda x, m, s: stats.norm.cdf(x, m, s),
        together(normal(SHAPE, SHAPE), _POSITIVE),
    ),
    Case("student_t_log_density", lambda x, d: stats.t.logpdf(x, d), together(_ANY, _POSITIVE)),
    Case("gamma_log_density", lambda x, a: stats.gamma.logpdf(x, a), positive(SHAPE, SHAPE)),
    Case(
        "beta_log_density",
        lambda x, a, b: stats.beta.logpdf(x, a, b),
        together(_UNIT, positive(SHAPE, SHAPE)),
    ),
    Case(
        "dirichlet_log_density",
        lambda a: stats.dirichlet.logpdf(jnp.array([0.2, 0.3, 0.5]), a),
        positive((3,)),
    ),
    Case(
        "laplace_log_density",
        lambda x, m, s: stats.laplace.logpdf(x, m, s),
        together(normal(SHAPE, SHAPE), _POSITIVE),
    ),
    Case("logistic_log_density", stats.logistic.logpdf, _ANY, order=2),
    Case("cauchy_log_density", stats.cauchy.logpdf, _ANY),
    Case("poisson_log_mass", lambda m: stats.poisson.logpmf(jnp.arange(4), m), _POSITIVE),
    Case("chi_squared_log_density", lambda x: stats.chi2.logpdf(x, 3.0), _POSITIVE),
    Case(
        "truncated_normal_log_density",
        lambda x: stats.truncnorm.logpdf(x, -2.0, 2.0),
        uniform(-1.5, 1.5, SHAPE),
    ),
    Case(
        "multivariate_normal_log_density",
        lambda x, m, c: stats.multivariate_normal.logpdf(x, m, c @ c.T + jnp.eye(4)),
        normal((3, 4), (4,), (4, 4)),
    ),
    Case("lgamma_of_sum", lambda x: lax.lgamma(x + 1).sum() - lax.lgamma((x + 1).sum()), _POSITIVE, order=2),
]
