"""PCP, the Planetary Compute Protocol: one StableHLO program, run the fastest way, on one device or many."""

from pcp import models as models
from pcp import nn as nn
from pcp import ops as ops
from pcp import optimizers as optimizers
from pcp import rewrite as rewrite
from pcp.autodiff import grad as grad
from pcp.autodiff import value_and_grad as value_and_grad
from pcp.autodiff import vjp as vjp
from pcp.errors import PCPError as PCPError
from pcp.ir import Program as Program
from pcp.ir.program_file import load as load
from pcp.ops import random as random
from pcp.ops.along_axis import take_along_axis as take_along_axis
from pcp.ops.arrangement import moveaxis as moveaxis
from pcp.ops.arrangement import repeat as repeat
from pcp.ops.arrangement import roll as roll
from pcp.ops.arrangement import tile as tile
from pcp.ops.branches import cond as cond
from pcp.ops.branches import switch as switch
from pcp.ops.control_flow import fori_loop as fori_loop
from pcp.ops.control_flow import while_loop as while_loop
from pcp.ops.creation import arange as arange
from pcp.ops.creation import eye as eye
from pcp.ops.creation import full_like as full_like
from pcp.ops.creation import linspace as linspace
from pcp.ops.creation import ones_like as ones_like
from pcp.ops.creation import zeros_like as zeros_like
from pcp.ops.cumulative import cumsum as cumsum
from pcp.ops.elementwise import clip as clip
from pcp.ops.elementwise import convert as convert
from pcp.ops.elementwise import cos as cos
from pcp.ops.elementwise import erf as erf
from pcp.ops.elementwise import exp as exp
from pcp.ops.elementwise import expm1 as expm1
from pcp.ops.elementwise import log as log
from pcp.ops.elementwise import log1p as log1p
from pcp.ops.elementwise import maximum as maximum
from pcp.ops.elementwise import minimum as minimum
from pcp.ops.elementwise import rsqrt as rsqrt
from pcp.ops.elementwise import sigmoid as sigmoid
from pcp.ops.elementwise import sin as sin
from pcp.ops.elementwise import sqrt as sqrt
from pcp.ops.elementwise import square as square
from pcp.ops.elementwise import tanh as tanh
from pcp.ops.elementwise import where as where
from pcp.ops.indexing import one_hot as one_hot
from pcp.ops.indexing import take as take
from pcp.ops.linear_algebra import dot_general as dot_general
from pcp.ops.linear_algebra import einsum as einsum
from pcp.ops.linear_algebra import matmul as matmul
from pcp.ops.matrices import norm as norm
from pcp.ops.matrices import tensordot as tensordot
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
from pcp.ops.reduction import argmax as argmax
from pcp.ops.reduction import argmin as argmin
from pcp.ops.reduction import mean as mean
from pcp.ops.reduction import var as var
from pcp.ops.scanning import scan as scan
from pcp.ops.sorting import argsort as argsort
from pcp.ops.sorting import sort as sort
from pcp.ops.sorting import top_k as top_k
from pcp.ops.statistics import prod as prod
from pcp.ops.statistics import std as std
from pcp.ops.tapping import tap as tap
from pcp.ops.updating import index_update as index_update
from pcp.planning import AutoDiffPlan as AutoDiffPlan
from pcp.planning import Plan as Plan
from pcp.planning import find_nan as find_nan
from pcp.planning import plan as plan
from pcp.planning.profile_database import ProfileDatabase as ProfileDatabase
from pcp.tensor import Tensor as Tensor
from pcp.tracing import call as call
from pcp.tracing import spec as spec
from pcp.tracing import specs_of as specs_of
from pcp.tracing import trace as trace
from pcp.training.step import TrainingStep as TrainingStep
from pcp.training.step import training_step as training_step

abs = ops.abs
all = ops.all
any = ops.any
max = ops.max
min = ops.min
round = ops.round
sum = ops.sum
