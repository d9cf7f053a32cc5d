"""Programs as values: types, nesting, StableHLO modules, their identity and their construction."""

from pcp.ir.bindings import InvalidProgram as InvalidProgram
from pcp.ir.builder import Builder as Builder
from pcp.ir.expecting import ProgramExpected as ProgramExpected
from pcp.ir.nesting import NestedTooDeeply as NestedTooDeeply
from pcp.ir.program import Program as Program
from pcp.ir.signature import PARAMETERS as PARAMETERS
from pcp.ir.signature import Argument as Argument
from pcp.ir.signature import Result as Result
from pcp.ir.signature import Role as Role
from pcp.ir.tree import Tree as Tree
from pcp.ir.tree import TreeMismatch as TreeMismatch
from pcp.ir.types import DType as DType
from pcp.ir.types import DTypeLike as DTypeLike
from pcp.ir.types import InvalidShape as InvalidShape
from pcp.ir.types import TensorSpec as TensorSpec
from pcp.ir.types import UnknownDType as UnknownDType
