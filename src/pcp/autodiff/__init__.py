"""Gradients: reverse mode as a transformation of Programs, with one table row for each operation."""

from pcp.autodiff import rules as rules
from pcp.autodiff.gradient import NonScalarLoss as NonScalarLoss
from pcp.autodiff.gradient import NotDifferentiable as NotDifferentiable
from pcp.autodiff.gradient import UnknownArgument as UnknownArgument
from pcp.autodiff.gradient import grad as grad
from pcp.autodiff.gradient import value_and_grad as value_and_grad
from pcp.autodiff.gradient import value_and_vjp as value_and_vjp
from pcp.autodiff.gradient import vjp as vjp
from pcp.autodiff.loop_memory import UnknownLoopMemory as UnknownLoopMemory
from pcp.autodiff.phases import Phases as Phases
from pcp.autodiff.phases import two_phases as two_phases
from pcp.autodiff.rule import RULES as RULES
from pcp.autodiff.rule import Captured as Captured
from pcp.autodiff.rule import Expansion as Expansion
from pcp.autodiff.rule import InvalidRule as InvalidRule
from pcp.autodiff.rule import NoDerivative as NoDerivative
from pcp.autodiff.rule import Primal as Primal
from pcp.autodiff.rule import register_rule as register_rule
