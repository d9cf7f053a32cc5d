"""Elementwise operations: one result element for each place, from the elements at that place.

Each is declared once, with its derivative beside it: in `arithmetic`, `bits`, `comparison`, `conversion`, `functions`,
`rounding` or `special`. In `composed` are functions of several operations. Every function of these files is here by its name.
"""

from pcp.ops.elementwise.arithmetic import *
from pcp.ops.elementwise.bits import *
from pcp.ops.elementwise.comparison import *
from pcp.ops.elementwise.composed import *
from pcp.ops.elementwise.conversion import *
from pcp.ops.elementwise.functions import *
from pcp.ops.elementwise.rounding import *
from pcp.ops.elementwise.special import *
from pcp.tensor import export_operations

export_operations(__name__)
