"""Special functions: the error function, the gamma function and their kin; operations of CHLO.

In a derivative, g is the cotangent of the result y, then come the operands.

Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, chapters 6, 7, 9 and 23; for the Bessel function
I0, the Chebyshev series of Clenshaw, "Chebyshev series for mathematical functions", 1962, with the coefficients of Cephes.
"""

import math
from collections.abc import Sequence
from functools import partial

from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise.arithmetic import abs_, sign
from pcp.ops.elementwise.comparison import greater, less_equal, where
from pcp.ops.elementwise.forms import REAL, chlo, elementwise, unary
from pcp.ops.elementwise.functions import exp, sqrt
from pcp.ops.movement import full
from pcp.ops.record import Cost
from pcp.tensor import Tensor, export_operations

TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)

# e^-x I0(x) up to 8, in x / 2 - 2, and sqrt(x) e^-x I0(x) beyond it, in 32 / x - 2.
NEAR = (
    -4.41534164647933937950e-18, 3.33079451882223809783e-17, -2.43127984654795469359e-16, 1.71539128555513303061e-15,
    -1.16853328779934516808e-14, 7.67618549860493561688e-14, -4.85644678311192946090e-13, 2.95505266312963983461e-12,
    -1.72682629144155570723e-11, 9.67580903537323691224e-11, -5.18979560163526290666e-10, 2.65982372468238665035e-9,
    -1.30002500998624804212e-8, 6.04699502254191894932e-8, -2.67079385394061173391e-7, 1.11738753912010371815e-6,
    -4.41673835845875056359e-6, 1.64484480707288970893e-5, -5.75419501008210370398e-5, 1.88502885095841655729e-4,
    -5.76375574538582365885e-4, 1.63947561694133579842e-3, -4.32430999505057594430e-3, 1.05464603945949983183e-2,
    -2.37374148058994688156e-2, 4.93052842396707084878e-2, -9.49010970480476444210e-2, 1.71620901522208775349e-1,
    -3.04682672343198398683e-1, 6.76795274409476084995e-1,
)  # fmt: skip
FAR = (
    -7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17, 3.46122286769746109310e-17,
    -2.82762398051658348494e-16, -3.42548561967721913462e-16, 1.77256013305652638360e-15, 3.81168066935262242075e-15,
    -9.55484669882830764870e-15, -4.15056934728722208663e-14, 1.54008621752140982691e-14, 3.85277838274214270114e-13,
    7.18012445138366623367e-13, -1.79417853150680611778e-12, -1.32158118404477131188e-11, -3.14991652796324136454e-11,
    1.18891471078464383424e-11, 4.94060238822496958910e-10, 3.39623202570838634515e-9, 2.26666899049817806459e-8,
    2.04891858946906374183e-7, 2.89137052083475648297e-6, 6.88975834691682398426e-5, 3.36911647825569408990e-3,
    8.04490411014108831608e-1,
)  # fmt: skip


def _chebyshev(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Half the sum of a Chebyshev series in x / 2, by Clenshaw's recurrence."""
    last = before = current = full(x.shape, 0, x.dtype)
    for coefficient in coefficients:
        last, before, current = before, current, x * current - before + coefficient
    return 0.5 * (current - last)


def bessel_i0e(x: Tensor) -> Tensor:
    """e^-|x| I0(x), the scaled modified Bessel function of order 0."""
    size = abs_(x)
    near = less_equal(size, 8)
    # Each series only sees its own arguments, so that no derivative of the other one is infinite.
    small, large = where(near, size, 1), where(near, 9, size)
    return where(near, _chebyshev(0.5 * small - 2, NEAR), _chebyshev(32 / large - 2, FAR) / sqrt(large))


def _bessel_i1e(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The derivative of e^-|x| I1(x) is e^-|x| I0(x) - y (sign x + 1 / x), and 1/2 at 0."""
    apart = greater(abs_(x), {"f64": 2.2e-16, "f32": 1.2e-7}.get(x.dtype.name, 1e-3))
    safe = where(apart, x, 1)
    return g * where(apart, bessel_i0e(safe) - y * (sign(safe) + 1 / safe), 0.5)


def _polygamma(primal: Primal, g: Tensor) -> Sequence[Cotangent]:
    n, x = primal.inputs
    if primal.active[0]:
        primal.refuse("the polygamma function has no rule for its order")
    return [None, g * chlo("chlo.polygamma", n + 1, x)]


def _zeta(primal: Primal, g: Tensor) -> Sequence[Cotangent]:
    """The derivative of sum (k + q)^-x by q is -x sum (k + q)^(-x - 1)."""
    x, q = primal.inputs
    if primal.active[0]:
        primal.refuse("the zeta function has no rule for its exponent, only for its offset")
    return [None, -(g * (x * chlo("chlo.zeta", x + 1, q)))]


_unary = partial(unary, cost=Cost.function, rounds=True)
_declared = partial(elementwise, cost=Cost.function, rounds=True)

erf = _unary(
    "erf",
    "chlo.erf",
    REAL,
    "the error function",
    derivative=(lambda g, y, x: g * (TWO_OVER_ROOT_PI * exp(-(x * x))),),
)
erfc = _unary(
    "erfc",
    "chlo.erfc",
    REAL,
    "1 - erf(x), accurate for large x",
    derivative=(lambda g, y, x: -(g * (TWO_OVER_ROOT_PI * exp(-(x * x)))),),
)
erf_inv = _unary(
    "erf_inv",
    "chlo.erf_inv",
    REAL,
    "number whose error function is x",
    derivative=(lambda g, y, x: g * (exp(y * y) / TWO_OVER_ROOT_PI),),
)
lgamma = _unary(
    "lgamma",
    "chlo.lgamma",
    REAL,
    "logarithm of |gamma(x)|",
    derivative=(lambda g, y, x: g * chlo("chlo.digamma", x),),
)
digamma = _unary(
    "digamma",
    "chlo.digamma",
    REAL,
    "derivative of lgamma",
    derivative=(lambda g, y, x: g * chlo("chlo.polygamma", full(x.shape, 1, x.dtype), x),),
)
_declared("chlo.polygamma", derivative=_polygamma)
_declared("chlo.zeta", derivative=_zeta)
_declared("chlo.bessel_i1e", derivative=(_bessel_i1e,))

export_operations(__name__)
