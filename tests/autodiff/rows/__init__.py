"""One row or more for every derivative rule.

`tests/autodiff/test_rules.py` puts each into the middle of a graph and checks it, and fails if a rule has no row.
"""

from tests.autodiff.rows.control import CONTROL
from tests.autodiff.rows.decompositions import DECOMPOSITIONS
from tests.autodiff.rows.elementwise import BINARY, COMPLEX, UNARY
from tests.autodiff.rows.factorization import FACTORIZATION
from tests.autodiff.rows.indexing import INDEXING
from tests.autodiff.rows.linear_algebra import LINEAR_ALGEBRA
from tests.autodiff.rows.movement import MOVEMENT
from tests.autodiff.rows.normalization import GENERAL_BODIES, NORMALIZATION, OTHERS
from tests.autodiff.rows.reduction import REDUCTION
from tests.autodiff.rows.scatters import SCATTERS
from tests.autodiff.rows.special import COMPLEX_NUMBERS, FOURIER, SPECIAL
from tests.autodiff.rows.windows import WINDOWS
from tests.conftest import PLATFORM

EVERY = [
    *UNARY,
    *BINARY,
    *COMPLEX,
    *MOVEMENT,
    *REDUCTION,
    *LINEAR_ALGEBRA,
    *INDEXING,
    *CONTROL,
    *WINDOWS,
    *FACTORIZATION,
    *DECOMPOSITIONS,
    *SCATTERS,
    *SPECIAL,
    *FOURIER,
    *COMPLEX_NUMBERS,
    *NORMALIZATION,
    *GENERAL_BODIES,
    *OTHERS,
]
ON_PROCESSORS = (
    "custom_call.lapack_",  # JAX calls other libraries on GPUs, whose calls have no rules
    "convert",  # JAX leaves out conversions to fewer bits and back there
    "reduce_window",  # JAX warns of less precision in second derivatives of the largest in a window
    "select_and_scatter",
    "chlo.broadcast_select",  # XLA does not take it there
)
"""What rules begin with that are tested on processors alone."""
ROWS = [row for row in EVERY if PLATFORM == "cpu" or not row.rule.startswith(ON_PROCESSORS)]
