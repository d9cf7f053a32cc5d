"""Programs whose sizes are symbols.

`expressions` (arithmetic of symbols), `constraints` (what sizes may be), `sampling` (sizes to build a program for), `fitting`
(numbers of a program as expressions), `template` (its text for any sizes), `agreement` and `checking` (whether that is what the
function makes), `numbers` (next to which it may not be), `file`, `program` (all of it as one value), `watched`, `quotients` and
`sizes` (what a traced function sees), `watching` and `proving` (what it asks of its sizes), `computed` and `open_shapes` (what
a program of StableHLO asks), `solving` (sizes from shapes), `lifting` (transformations of Programs, of symbolic ones).
"""

from pcp.symbolic.constraints import Constraint as Constraint
from pcp.symbolic.constraints import InvalidConstraint as InvalidConstraint
from pcp.symbolic.constraints import SizesRefused as SizesRefused
from pcp.symbolic.constraints import Space as Space
from pcp.symbolic.expressions import Expression as Expression
from pcp.symbolic.expressions import InvalidSize as InvalidSize
from pcp.symbolic.program import SizesNeeded as SizesNeeded
from pcp.symbolic.program import SymbolicArgument as SymbolicArgument
from pcp.symbolic.program import SymbolicProgram as SymbolicProgram
from pcp.symbolic.program import SymbolicResult as SymbolicResult
from pcp.symbolic.program import SymbolicSpec as SymbolicSpec
from pcp.symbolic.template import BuiltDifferently as BuiltDifferently
