"""What `pcp` offers: every name here is one of `pcp`."""

from pcp import fft as fft
from pcp import linalg as linalg
from pcp import models as models
from pcp import nn as nn
from pcp import ops as ops
from pcp import optimizers as optimizers
from pcp import rewrite as rewrite
from pcp.autodiff import checkpoint as checkpoint
from pcp.autodiff import hvp as hvp
from pcp.autodiff import jvp as jvp
from pcp.autodiff import save_only_these_names as save_only_these_names
from pcp.autodiff import vjp as vjp
from pcp.backends import Target as Target
from pcp.batching import hessian as hessian
from pcp.batching import jacobian as jacobian
from pcp.batching import vmap as vmap
from pcp.calling.array import Array as Array
from pcp.calling.array import array as array
from pcp.calling.array import asarray as asarray
from pcp.calling.jit import jit as jit
from pcp.composites import composite as composite
from pcp.errors import PCPError as PCPError
from pcp.importers.jax import from_jax as from_jax
from pcp.importers.jax_callable import to_jax as to_jax
from pcp.importers.jax_trees import jax_arrays as jax_arrays
from pcp.importers.loading import load as load
from pcp.importers.lora import lora as lora
from pcp.importers.text import generate as generate
from pcp.importers.torch import Imported as Imported
from pcp.importers.torch import from_torch as from_torch
from pcp.importers.weights import load_weights as load_weights
from pcp.ir import Program as Program
from pcp.ir.trees.nodes import register_pytree_node as register_pytree_node
from pcp.linalg.polynomials import polyfit as polyfit
from pcp.linalg.polynomials import roots as roots
from pcp.ops import *  # type: ignore[assignment]  # mypy does not see its __all__, which has no Array
from pcp.ops import random as random
from pcp.ops.families.kinds import *
from pcp.planning import AutoDiffPlan as AutoDiffPlan
from pcp.planning import Path as Path
from pcp.planning import Plan as Plan
from pcp.planning import explore as explore
from pcp.planning import find_nan as find_nan
from pcp.planning import paths as paths
from pcp.planning import plan as plan
from pcp.planning.profile.database import ProfileDatabase as ProfileDatabase
from pcp.planning.streaming import streamed as streamed
from pcp.rewrite.vanishing.gradients import grad as grad
from pcp.rewrite.vanishing.gradients import value_and_grad as value_and_grad
from pcp.tensor import Tensor as Tensor
from pcp.tracing import call as call
from pcp.tracing import spec as spec
from pcp.tracing import specs_of as specs_of
from pcp.tracing import trace as trace  # type: ignore[assignment]  # the sum of a diagonal stays in pcp.ops
from pcp.training.step import TrainingStep as TrainingStep
from pcp.training.step import training_step as training_step
