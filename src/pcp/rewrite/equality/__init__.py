"""Programs that are equal by algebra: other orders of products, merged products, sums that are multiplied out or factored.

`matrices` reads the part of a program that is made of matrices, `saturation` finds all that is equal to it within limits, by
egglog, `extraction` chooses from that by the cost of its operations, and `emission` writes what was chosen as a program.

Source: Willsey et al., "egg: fast and extensible equality saturation", POPL 2021; Zhang et al., "Better together: unifying
datalog and equality saturation", PLDI 2023; Yang et al., "Equality saturation for tensor graph superoptimization", MLSys 2021.
"""

from pcp.rewrite.equality.emission import emitted as emitted
from pcp.rewrite.equality.extraction import Choice as Choice
from pcp.rewrite.equality.extraction import Operation as Operation
from pcp.rewrite.equality.extraction import choices as choices
from pcp.rewrite.equality.matrices import Matrices as Matrices
from pcp.rewrite.equality.matrices import matrices_of as matrices_of
from pcp.rewrite.equality.saturation import EqualityUnavailable as EqualityUnavailable
from pcp.rewrite.equality.saturation import Graph as Graph
from pcp.rewrite.equality.saturation import Limits as Limits
from pcp.rewrite.equality.saturation import saturated as saturated
