"""Movement operations: the elements stay as they are and go to other places.

Each is declared once, with its derivative and its batched form beside it: in `shape`, `joining` and `filling`. In `arrangement`
are functions of several operations. Every function of these files is here by its name.
"""

from pcp.ops.movement.arrangement import *
from pcp.ops.movement.arrangement import along_or_flat as along_or_flat
from pcp.ops.movement.filling import *
from pcp.ops.movement.joining import *
from pcp.ops.movement.padding import *
from pcp.ops.movement.shape import *
from pcp.tensor import export_operations

export_operations(__name__)
