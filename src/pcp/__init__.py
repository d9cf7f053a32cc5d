"""PCP, the Planetary Compute Protocol: one StableHLO program, run the fastest way, on one device or many."""

from pcp.errors import PCPError as PCPError
from pcp.ir import Program as Program
from pcp.ops.elementwise import where as where
from pcp.planning import Plan as Plan
from pcp.planning import plan as plan
from pcp.tensor import Tensor as Tensor
from pcp.tracing import call as call
from pcp.tracing import spec as spec
from pcp.tracing import specs_of as specs_of
from pcp.tracing import trace as trace
