"""Operations on Tensors: three families of primitives (movement, elementwise, reduction) and what is composed of them.

Every function is here by its name: `ops.exp(x)`. Those of random numbers stand in `ops.random`.
"""

from pcp.ops import elementwise as elementwise
from pcp.ops import movement as movement
from pcp.ops import random as random
from pcp.ops import reduction as reduction
from pcp.ops import special as special
from pcp.ops.along_axis import put_along_axis as put_along_axis
from pcp.ops.along_axis import take_along_axis as take_along_axis
from pcp.ops.arrangement import broadcast_arrays as broadcast_arrays
from pcp.ops.arrangement import diff as diff
from pcp.ops.arrangement import flip as flip
from pcp.ops.arrangement import moveaxis as moveaxis
from pcp.ops.arrangement import ravel as ravel
from pcp.ops.arrangement import repeat as repeat
from pcp.ops.arrangement import roll as roll
from pcp.ops.arrangement import tile as tile
from pcp.ops.arrangement import unstack as unstack
from pcp.ops.branches import cond as cond
from pcp.ops.branches import switch as switch
from pcp.ops.collectives import all_gather as all_gather
from pcp.ops.collectives import all_reduce as all_reduce
from pcp.ops.collectives import all_to_all as all_to_all
from pcp.ops.collectives import collective_permute as collective_permute
from pcp.ops.collectives import reduce_scatter as reduce_scatter
from pcp.ops.control_flow import fori_loop as fori_loop
from pcp.ops.control_flow import while_loop as while_loop
from pcp.ops.convolution import conv1d as conv1d
from pcp.ops.convolution import conv2d as conv2d
from pcp.ops.convolution import conv3d as conv3d
from pcp.ops.convolution import conv_general as conv_general
from pcp.ops.convolution import conv_transpose as conv_transpose
from pcp.ops.creation import arange as arange
from pcp.ops.creation import eye as eye
from pcp.ops.creation import full_like as full_like
from pcp.ops.creation import linspace as linspace
from pcp.ops.creation import meshgrid as meshgrid
from pcp.ops.creation import ones_like as ones_like
from pcp.ops.creation import zeros_like as zeros_like
from pcp.ops.cumulative import cummax as cummax
from pcp.ops.cumulative import cummin as cummin
from pcp.ops.cumulative import cumprod as cumprod
from pcp.ops.cumulative import cumsum as cumsum
from pcp.ops.cumulative import logcumsumexp as logcumsumexp
from pcp.ops.elementwise import add as add
from pcp.ops.elementwise import arctan2 as arctan2
from pcp.ops.elementwise import bitcast as bitcast
from pcp.ops.elementwise import bitwise_and as bitwise_and
from pcp.ops.elementwise import bitwise_not as bitwise_not
from pcp.ops.elementwise import bitwise_or as bitwise_or
from pcp.ops.elementwise import bitwise_xor as bitwise_xor
from pcp.ops.elementwise import cbrt as cbrt
from pcp.ops.elementwise import ceil as ceil
from pcp.ops.elementwise import clip as clip
from pcp.ops.elementwise import convert as convert
from pcp.ops.elementwise import cos as cos
from pcp.ops.elementwise import count_leading_zeros as count_leading_zeros
from pcp.ops.elementwise import divide as divide
from pcp.ops.elementwise import equal as equal
from pcp.ops.elementwise import erf as erf
from pcp.ops.elementwise import exp as exp
from pcp.ops.elementwise import expm1 as expm1
from pcp.ops.elementwise import floor as floor
from pcp.ops.elementwise import floor_divide as floor_divide
from pcp.ops.elementwise import greater as greater
from pcp.ops.elementwise import greater_equal as greater_equal
from pcp.ops.elementwise import imag as imag
from pcp.ops.elementwise import is_finite as is_finite
from pcp.ops.elementwise import less as less
from pcp.ops.elementwise import less_equal as less_equal
from pcp.ops.elementwise import log as log
from pcp.ops.elementwise import log1p as log1p
from pcp.ops.elementwise import logical_not as logical_not
from pcp.ops.elementwise import maximum as maximum
from pcp.ops.elementwise import minimum as minimum
from pcp.ops.elementwise import modulo as modulo
from pcp.ops.elementwise import multiply as multiply
from pcp.ops.elementwise import negate as negate
from pcp.ops.elementwise import not_equal as not_equal
from pcp.ops.elementwise import population_count as population_count
from pcp.ops.elementwise import power as power
from pcp.ops.elementwise import real as real
from pcp.ops.elementwise import reciprocal as reciprocal
from pcp.ops.elementwise import remainder as remainder
from pcp.ops.elementwise import rsqrt as rsqrt
from pcp.ops.elementwise import shift_left as shift_left
from pcp.ops.elementwise import shift_right as shift_right
from pcp.ops.elementwise import sigmoid as sigmoid
from pcp.ops.elementwise import sign as sign
from pcp.ops.elementwise import sin as sin
from pcp.ops.elementwise import sqrt as sqrt
from pcp.ops.elementwise import square as square
from pcp.ops.elementwise import subtract as subtract
from pcp.ops.elementwise import tan as tan
from pcp.ops.elementwise import tanh as tanh
from pcp.ops.elementwise import where as where
from pcp.ops.indexing import WindowAxes as WindowAxes
from pcp.ops.indexing import dynamic_slice as dynamic_slice
from pcp.ops.indexing import dynamic_update_slice as dynamic_update_slice
from pcp.ops.indexing import gather as gather
from pcp.ops.indexing import index as index
from pcp.ops.indexing import one_hot as one_hot
from pcp.ops.indexing import scatter as scatter
from pcp.ops.indexing import take as take
from pcp.ops.linear_algebra import dot_general as dot_general
from pcp.ops.linear_algebra import einsum as einsum
from pcp.ops.linear_algebra import matmul as matmul
from pcp.ops.matrices import cholesky as cholesky
from pcp.ops.matrices import cholesky_solve as cholesky_solve
from pcp.ops.matrices import diag as diag
from pcp.ops.matrices import diagonal as diagonal
from pcp.ops.matrices import inner as inner
from pcp.ops.matrices import norm as norm
from pcp.ops.matrices import outer as outer
from pcp.ops.matrices import tensordot as tensordot
from pcp.ops.matrices import trace as trace
from pcp.ops.matrices import triangular_solve as triangular_solve
from pcp.ops.matrices import tril as tril
from pcp.ops.matrices import triu as triu
from pcp.ops.movement import broadcast_to as broadcast_to
from pcp.ops.movement import concatenate as concatenate
from pcp.ops.movement import expand_dims as expand_dims
from pcp.ops.movement import full as full
from pcp.ops.movement import iota as iota
from pcp.ops.movement import ones as ones
from pcp.ops.movement import pad as pad
from pcp.ops.movement import reshape as reshape
from pcp.ops.movement import reverse as reverse
from pcp.ops.movement import split as split
from pcp.ops.movement import squeeze as squeeze
from pcp.ops.movement import stack as stack
from pcp.ops.movement import stop_gradient as stop_gradient
from pcp.ops.movement import swapaxes as swapaxes
from pcp.ops.movement import transpose as transpose
from pcp.ops.movement import zeros as zeros
from pcp.ops.normalizing import log_softmax as log_softmax
from pcp.ops.normalizing import logsumexp as logsumexp
from pcp.ops.normalizing import softmax as softmax
from pcp.ops.pooling import avg_pool as avg_pool
from pcp.ops.pooling import max_pool as max_pool
from pcp.ops.reduction import argmax as argmax
from pcp.ops.reduction import argmin as argmin
from pcp.ops.reduction import mean as mean
from pcp.ops.reduction import product as product
from pcp.ops.reduction import var as var
from pcp.ops.scanning import scan as scan
from pcp.ops.sorting import argsort as argsort
from pcp.ops.sorting import searchsorted as searchsorted
from pcp.ops.sorting import sort as sort
from pcp.ops.sorting import top_k as top_k
from pcp.ops.special import arccos as arccos
from pcp.ops.special import arccosh as arccosh
from pcp.ops.special import arcsin as arcsin
from pcp.ops.special import arcsinh as arcsinh
from pcp.ops.special import arctan as arctan
from pcp.ops.special import arctanh as arctanh
from pcp.ops.special import conj as conj
from pcp.ops.special import cosh as cosh
from pcp.ops.special import digamma as digamma
from pcp.ops.special import erf_inv as erf_inv
from pcp.ops.special import erfc as erfc
from pcp.ops.special import exp2 as exp2
from pcp.ops.special import hypot as hypot
from pcp.ops.special import is_inf as is_inf
from pcp.ops.special import is_nan as is_nan
from pcp.ops.special import isclose as isclose
from pcp.ops.special import lgamma as lgamma
from pcp.ops.special import log2 as log2
from pcp.ops.special import log10 as log10
from pcp.ops.special import logaddexp as logaddexp
from pcp.ops.special import logical_and as logical_and
from pcp.ops.special import logical_or as logical_or
from pcp.ops.special import logical_xor as logical_xor
from pcp.ops.special import nan_to_num as nan_to_num
from pcp.ops.special import sinh as sinh
from pcp.ops.special import softplus as softplus
from pcp.ops.special import trunc as trunc
from pcp.ops.statistics import count_nonzero as count_nonzero
from pcp.ops.statistics import median as median
from pcp.ops.statistics import prod as prod
from pcp.ops.statistics import quantile as quantile
from pcp.ops.statistics import std as std
from pcp.ops.tapping import tap as tap
from pcp.ops.updating import index_update as index_update
from pcp.ops.updating import scatter_add as scatter_add
from pcp.ops.updating import scatter_set as scatter_set
from pcp.ops.windows import reduce_window as reduce_window
from pcp.tensor import OPERATIONS as OPERATIONS

# In their modules these names end in an underscore, to leave Python's own alone.
abs = elementwise.abs_
complex = elementwise.complex_
round = elementwise.round_
slice = movement.slice_
all = reduction.all_
any = reduction.any_
max = reduction.max_
min = reduction.min_
sum = reduction.sum_

# Under NumPy's names, too.
isfinite = elementwise.is_finite
isinf = special.is_inf
isnan = special.is_nan
