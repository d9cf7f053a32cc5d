"""Batching: a program for one sample becomes one for many, with one table row for each operation; and Jacobians by it."""

from pcp.batching import rules as rules
from pcp.batching.jacobian import NoJacobian as NoJacobian
from pcp.batching.jacobian import hessian as hessian
from pcp.batching.jacobian import jacobian as jacobian
from pcp.batching.vmap import BatchMismatch as BatchMismatch
from pcp.batching.vmap import vmap as vmap
from pcp.ops.batching import BATCHING as BATCHING
from pcp.ops.batching import Batched as Batched
from pcp.ops.batching import Mixed as Mixed
from pcp.ops.batching import register_batching as register_batching
