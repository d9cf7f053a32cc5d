"""Operations on Tensors: three families of primitives (movement, elementwise, reduction) and what is composed of them.

Every function is here by its name: `ops.exp(x)`. Those of random numbers stand in `ops.random`.
"""

from pcp.ops import batch_normalization as batch_normalization
from pcp.ops import elementwise as elementwise
from pcp.ops import movement as movement
from pcp.ops import random as random
from pcp.ops import structure as structure
from pcp.ops.collectives import all_gather as all_gather
from pcp.ops.collectives import all_reduce as all_reduce
from pcp.ops.collectives import all_to_all as all_to_all
from pcp.ops.collectives import collective_permute as collective_permute
from pcp.ops.collectives import reduce_scatter as reduce_scatter
from pcp.ops.control.branches import cond as cond
from pcp.ops.control.branches import switch as switch
from pcp.ops.control.loops import fori_loop as fori_loop
from pcp.ops.control.loops import while_loop as while_loop
from pcp.ops.control.scanning import scan as scan
from pcp.ops.creation import arange as arange
from pcp.ops.creation import eye as eye
from pcp.ops.creation import full_like as full_like
from pcp.ops.creation import linspace as linspace
from pcp.ops.creation import meshgrid as meshgrid
from pcp.ops.creation import ones_like as ones_like
from pcp.ops.creation import zeros_like as zeros_like
from pcp.ops.elementwise import *
from pcp.ops.indexing import scattering as scattering
from pcp.ops.indexing.along_axis import put_along_axis as put_along_axis
from pcp.ops.indexing.along_axis import take_along_axis as take_along_axis
from pcp.ops.indexing.blocks import dynamic_slice as dynamic_slice
from pcp.ops.indexing.blocks import dynamic_update_slice as dynamic_update_slice
from pcp.ops.indexing.gathering import WindowAxes as WindowAxes
from pcp.ops.indexing.gathering import gather as gather
from pcp.ops.indexing.gathering import scatter as scatter
from pcp.ops.indexing.reading import index as index
from pcp.ops.indexing.reading import one_hot as one_hot
from pcp.ops.indexing.reading import take as take
from pcp.ops.indexing.updating import index_update as index_update
from pcp.ops.indexing.updating import scatter_add as scatter_add
from pcp.ops.indexing.updating import scatter_set as scatter_set
from pcp.ops.linear import fourier as fourier
from pcp.ops.linear import lapack as lapack
from pcp.ops.linear.factorization import cholesky as cholesky
from pcp.ops.linear.factorization import cholesky_solve as cholesky_solve
from pcp.ops.linear.factorization import triangular_solve as triangular_solve
from pcp.ops.linear.matrices import diag as diag
from pcp.ops.linear.matrices import diagonal as diagonal
from pcp.ops.linear.matrices import inner as inner
from pcp.ops.linear.matrices import norm as norm
from pcp.ops.linear.matrices import outer as outer
from pcp.ops.linear.matrices import tensordot as tensordot
from pcp.ops.linear.matrices import trace as trace
from pcp.ops.linear.matrices import tril as tril
from pcp.ops.linear.matrices import triu as triu
from pcp.ops.linear.products import dot_general as dot_general
from pcp.ops.linear.products import einsum as einsum
from pcp.ops.linear.products import matmul as matmul
from pcp.ops.movement import *
from pcp.ops.normalizing import log_softmax as log_softmax
from pcp.ops.normalizing import logsumexp as logsumexp
from pcp.ops.normalizing import softmax as softmax
from pcp.ops.reductions import primitives as reduction
from pcp.ops.reductions.cumulative import cummax as cummax
from pcp.ops.reductions.cumulative import cummin as cummin
from pcp.ops.reductions.cumulative import cumprod as cumprod
from pcp.ops.reductions.cumulative import cumsum as cumsum
from pcp.ops.reductions.cumulative import logcumsumexp as logcumsumexp
from pcp.ops.reductions.primitives import argmax as argmax
from pcp.ops.reductions.primitives import argmin as argmin
from pcp.ops.reductions.primitives import mean as mean
from pcp.ops.reductions.primitives import product as product
from pcp.ops.reductions.primitives import var as var
from pcp.ops.reductions.sorting import argsort as argsort
from pcp.ops.reductions.sorting import searchsorted as searchsorted
from pcp.ops.reductions.sorting import sort as sort
from pcp.ops.reductions.sorting import top_k as top_k
from pcp.ops.reductions.statistics import count_nonzero as count_nonzero
from pcp.ops.reductions.statistics import median as median
from pcp.ops.reductions.statistics import prod as prod
from pcp.ops.reductions.statistics import quantile as quantile
from pcp.ops.reductions.statistics import std as std
from pcp.ops.tapping import tap as tap
from pcp.ops.windows import selection as selection
from pcp.ops.windows.convolution import conv1d as conv1d
from pcp.ops.windows.convolution import conv2d as conv2d
from pcp.ops.windows.convolution import conv3d as conv3d
from pcp.ops.windows.convolution import conv_general as conv_general
from pcp.ops.windows.convolution import conv_transpose as conv_transpose
from pcp.ops.windows.pooling import avg_pool as avg_pool
from pcp.ops.windows.pooling import max_pool as max_pool
from pcp.ops.windows.reducing import reduce_window as reduce_window
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
isinf = elementwise.is_inf
isnan = elementwise.is_nan
