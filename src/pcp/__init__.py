"""PCP, the Planetary Compute Protocol: one StableHLO program, run the fastest way, on one device or many."""

from pcp import models as models
from pcp import nn as nn
from pcp import ops as ops
from pcp import optimizers as optimizers
from pcp.autodiff import grad as grad
from pcp.autodiff import value_and_grad as value_and_grad
from pcp.autodiff import vjp as vjp
from pcp.errors import PCPError as PCPError
from pcp.ir import Program as Program
from pcp.ir.program_file import load as load
from pcp.ops.elementwise import where as where
from pcp.ops.tapping import tap as tap
from pcp.planning import AutoDiffPlan as AutoDiffPlan
from pcp.planning import Plan as Plan
from pcp.planning import find_nan as find_nan
from pcp.planning import plan as plan
from pcp.tensor import Tensor as Tensor
from pcp.tracing import call as call
from pcp.tracing import spec as spec
from pcp.tracing import specs_of as specs_of
from pcp.tracing import trace as trace
from pcp.training.step import TrainingStep as TrainingStep
from pcp.training.step import training_step as training_step
