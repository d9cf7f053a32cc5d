"""Operations under further names that NumPy has for them: each is the same function."""

from pcp.ops.elementwise import (
    abs_,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    bitwise_not,
    conj,
    divide,
    is_finite,
    is_inf,
    is_nan,
    modulo,
    negate,
    population_count,
    power,
    round_,
    shift_left,
    shift_right,
)
from pcp.ops.families.parts import deg2rad, rad2deg
from pcp.ops.movement import concatenate, transpose
from pcp.ops.reductions.primitives import max_, min_
from pcp.tensor import OPERATIONS, export_operations

absolute = abs_
acos = arccos
acosh = arccosh
amax = max_
amin = min_
around = round_
asin = arcsin
asinh = arcsinh
atan = arctan
atan2 = arctan2
atanh = arctanh
bitwise_count = population_count
bitwise_invert = bitwise_not
bitwise_left_shift = shift_left
bitwise_right_shift = shift_right
concat = concatenate
conjugate = conj
degrees = rad2deg
invert = bitwise_not
isfinite = is_finite
isinf = is_inf
isnan = is_nan
left_shift = shift_left
mod = modulo
negative = negate
permute_dims = transpose
pow = power
radians = deg2rad
right_shift = shift_right
true_divide = divide

_OWN = list(OPERATIONS.values())
_HELD = {name: value for name, value in globals().items() if any(value is each for each in _OWN)}
OPERATIONS.update({name: value for name, value in _HELD.items() if name.rstrip("_") not in OPERATIONS})

export_operations(__name__)
