"""Programs that are equal by algebra: other orders of products, merged products, sums that are multiplied out or factored.

`matrices` reads the parts of a program that are made of matrices. `saturation` finds all that is equal to one within limits, by
egglog. `extraction` chooses from that by the cost of its operations. `form` writes down what was chosen, and `emission` makes
the program of a form; these two do without egglog.

Source: Willsey et al., "egg: fast and extensible equality saturation", POPL 2021; Zhang et al., "Better together: unifying
datalog and equality saturation", PLDI 2023; Yang et al., "Equality saturation for tensor graph superoptimization", MLSys 2021.
"""

from pcp.rewrite.equality.emission import equal_program as equal_program
from pcp.rewrite.equality.emission import made_by as made_by
from pcp.rewrite.equality.extraction import Choice as Choice
from pcp.rewrite.equality.extraction import Operation as Operation
from pcp.rewrite.equality.extraction import choices as choices
from pcp.rewrite.equality.extraction import operations_of as operations_of
from pcp.rewrite.equality.form import Form as Form
from pcp.rewrite.equality.form import FormMismatch as FormMismatch
from pcp.rewrite.equality.form import PartForm as PartForm
from pcp.rewrite.equality.form import Step as Step
from pcp.rewrite.equality.form import form_of as form_of
from pcp.rewrite.equality.form import is_written as is_written
from pcp.rewrite.equality.form import steps_as_operations as steps_as_operations
from pcp.rewrite.equality.matrices import Matrices as Matrices
from pcp.rewrite.equality.matrices import matrices_of as matrices_of
from pcp.rewrite.equality.saturation import EqualityUnavailable as EqualityUnavailable
from pcp.rewrite.equality.saturation import Graph as Graph
from pcp.rewrite.equality.saturation import Limits as Limits
from pcp.rewrite.equality.saturation import saturated as saturated
