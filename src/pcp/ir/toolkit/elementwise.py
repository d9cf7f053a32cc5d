"""Which operations work on each element by itself: operands and results have one shape, and places do not mix."""

_UNARY = """
    abs cbrt ceil convert cosine count_leading_zeros exponential exponential_minus_one floor imag is_finite log log_plus_one
    logistic negate not popcnt real reduce_precision round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh
"""
_BINARY = """
    add and atan2 compare complex divide maximum minimum multiply or power remainder shift_left shift_right_arithmetic
    shift_right_logical subtract xor
"""
_TERNARY = "clamp select"
_CHLO = """
    acos acosh asin asinh atan atanh bessel_i1e conj constant_like cosh digamma erf erf_inv erfc is_inf is_neg_inf is_pos_inf
    lgamma next_after polygamma sinh square tan zeta
"""

ELEMENTWISE = frozenset(
    [f"stablehlo.{name}" for name in (_UNARY + _BINARY + _TERNARY).split()]
    + [f"chlo.{name}" for name in _CHLO.split()]
)
"""Full names. A predicate of `select` and the bounds of `clamp` may be scalars instead."""
