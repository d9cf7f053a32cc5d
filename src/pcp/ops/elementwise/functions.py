"""Elementary functions: exponentials, logarithms, roots, and those of angles.

In a derivative, g is the cotangent of the result y, then come the operands.
"""

from functools import partial

import numpy as np

from pcp.ops.elementwise.forms import INEXACT, REAL, Unary, binary, by_numpy, chlo, elementwise, unary
from pcp.ops.record import Cost
from pcp.tensor import export_operations

_unary = partial(unary, cost=Cost.function, rounds=True)
_root = partial(unary, cost=Cost.arithmetic, rounds=True)

exp = _unary("exp", "exponential", INEXACT, "e^x", derivative=(lambda g, y, x: g * y,))
expm1 = _unary(
    "expm1",
    "exponential_minus_one",
    INEXACT,
    "e^x - 1, accurate near 0",
    derivative=(lambda g, y, x: g * (y + 1),),
)
log = _unary("log", "log", INEXACT, "natural logarithm", derivative=(lambda g, y, x: g / x,))
log1p = _unary(
    "log1p",
    "log_plus_one",
    INEXACT,
    "log(1 + x), accurate near 0",
    derivative=(lambda g, y, x: g / (x + 1),),
)
sqrt = _root(
    "sqrt",
    "sqrt",
    INEXACT,
    "square root",
    derivative=(lambda g, y, x: g * (0.5 / y),),
    fold=by_numpy(np.sqrt),
)
rsqrt = _root("rsqrt", "rsqrt", INEXACT, "1 / sqrt(x)", derivative=(lambda g, y, x: g * (-0.5 * (y / x)),))
cbrt = _unary("cbrt", "cbrt", REAL, "cube root", derivative=(lambda g, y, x: g / (3 * (y * y)),))

sin = _unary("sin", "sine", INEXACT, "sine of x in radians", derivative=(lambda g, y, x: g * cos(x),))
cos: Unary = _unary(
    "cos", "cosine", INEXACT, "cosine of x in radians", derivative=(lambda g, y, x: -(g * sin(x)),)
)
tan = _unary("tan", "tan", INEXACT, "tangent of x in radians", derivative=(lambda g, y, x: g * (y * y + 1),))
elementwise("chlo.tan", cost=Cost.function, rounds=True, derivative=(lambda g, y, x: g * (y * y + 1),))
arctan2 = binary(
    "arctan2",
    "atan2",
    INEXACT,
    "angle of the point (y, x) in radians",
    cost=Cost.function,
    rounds=True,
    derivative=(
        lambda g, y, a, b: g * (b / (a * a + b * b)),
        lambda g, y, a, b: -(g * (a / (a * a + b * b))),
    ),
)
arcsin = _unary(
    "arcsin",
    "chlo.asin",
    REAL,
    "angle in [-pi/2, pi/2] whose sine is x",
    derivative=(lambda g, y, x: g * rsqrt(1 - x * x),),
)
arccos: Unary = _unary(
    "arccos",
    "chlo.acos",
    REAL,
    "angle in [0, pi] whose cosine is x",
    derivative=(lambda g, y, x: -(g * rsqrt(1 - x * x)),),
)
arctan = _unary(
    "arctan",
    "chlo.atan",
    REAL,
    "angle in [-pi/2, pi/2] whose tangent is x",
    derivative=(lambda g, y, x: g / (x * x + 1),),
)

tanh = _unary(
    "tanh",
    "tanh",
    INEXACT,
    "hyperbolic tangent",
    derivative=(lambda g, y, x: (g + g * y) * (1 - y),),  # g (1 - y^2)
)
sigmoid = _unary(
    "sigmoid", "logistic", INEXACT, "1 / (1 + e^-x)", derivative=(lambda g, y, x: g * (y * (1 - y)),)
)
sinh = _unary(
    "sinh",
    "chlo.sinh",
    REAL,
    "hyperbolic sine",
    derivative=(lambda g, y, x: g * chlo("chlo.cosh", x),),
)
cosh = _unary(
    "cosh",
    "chlo.cosh",
    REAL,
    "hyperbolic cosine",
    derivative=(lambda g, y, x: g * chlo("chlo.sinh", x),),
)
arcsinh = _unary(
    "arcsinh",
    "chlo.asinh",
    REAL,
    "number whose hyperbolic sine is x",
    derivative=(lambda g, y, x: g * rsqrt(x * x + 1),),
)
arccosh = _unary(
    "arccosh",
    "chlo.acosh",
    REAL,
    "number not below 0 whose hyperbolic cosine is x",
    derivative=(lambda g, y, x: g * (rsqrt(x - 1) * rsqrt(x + 1)),),
)
arctanh = _unary(
    "arctanh",
    "chlo.atanh",
    REAL,
    "number whose hyperbolic tangent is x",
    derivative=(lambda g, y, x: g / (1 - x * x),),
)

export_operations(__name__)
