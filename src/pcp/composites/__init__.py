"""Composites at the source: a function of Tensors becomes one operation, which the program knows by its name.

The operation is a `stablehlo.composite`: a name, attributes, and a function of the program that says how it is computed.
`decorator` is for functions of users, which may bring their own derivative (`derivatives`); `emission` is under both it and
PCP's own composites, whose names and attributes kernels look for.
"""

from pcp.composites.decorator import Composite as Composite
from pcp.composites.decorator import composite as composite
from pcp.composites.emission import InvalidComposite as InvalidComposite
from pcp.composites.emission import InvalidDerivative as InvalidDerivative
from pcp.composites.emission import named as named
