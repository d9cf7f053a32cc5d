"""Operations on Tensors: three families of primitives (movement, elementwise, reduction) and what is composed of them.

Every function is here by its name: `ops.exp(x)`. Those of random numbers stand in `ops.random`.
"""

from pcp.ops import batch_normalization as batch_normalization
from pcp.ops import elementwise as elementwise
from pcp.ops import movement as movement
from pcp.ops import random as random
from pcp.ops import structure as structure
from pcp.ops.aliases import *
from pcp.ops.collectives import *
from pcp.ops.control.branches import *
from pcp.ops.control.loops import *
from pcp.ops.creation import *
from pcp.ops.elementwise import *
from pcp.ops.families.arranging import *
from pcp.ops.families.choosing import *
from pcp.ops.families.known import *
from pcp.ops.families.measuring import *
from pcp.ops.families.nans import *
from pcp.ops.families.neighbours import *
from pcp.ops.families.parts import *
from pcp.ops.families.polynomials import *
from pcp.ops.families.sets import *
from pcp.ops.families.stacking import *
from pcp.ops.indexing import scattering as scattering
from pcp.ops.indexing.along_axis import *
from pcp.ops.indexing.blocks import *
from pcp.ops.indexing.gathering import WindowAxes as WindowAxes
from pcp.ops.indexing.gathering import gather as gather
from pcp.ops.indexing.gathering import scatter as scatter
from pcp.ops.indexing.reading import *
from pcp.ops.indexing.updating import *
from pcp.ops.linear import fourier as fourier
from pcp.ops.linear import lapack as lapack
from pcp.ops.linear.contractions import *
from pcp.ops.linear.factorization import *
from pcp.ops.linear.matrices import *
from pcp.ops.linear.products import *
from pcp.ops.movement import *
from pcp.ops.normalizing import *
from pcp.ops.reductions import primitives as reduction
from pcp.ops.reductions.cumulative import *
from pcp.ops.reductions.extremes import *
from pcp.ops.reductions.primitives import *
from pcp.ops.scanning import *
from pcp.ops.sorting.sorting import *
from pcp.ops.sorting.statistics import *
from pcp.ops.tapping import *
from pcp.ops.windows import selection as selection
from pcp.ops.windows.convolution import *
from pcp.ops.windows.pooling import *
from pcp.ops.windows.reducing import *
from pcp.tensor import OPERATIONS as OPERATIONS
from pcp.tensor import export_operations as _export_operations

# In their modules these names end in an underscore, to leave Python's own alone.
abs = elementwise.abs_
complex = elementwise.complex_
round = elementwise.round_
slice = movement.slice_
all = reduction.all_
any = reduction.any_
max = reduction.max_
min = reduction.min_
sum = reduction.sum_

_export_operations(__name__)
