"""The rows of simplification: the same numbers from fewer or cheaper operations, in the order in which they are tried."""

from pcp.rewrite.row import Row
from pcp.rewrite.simplification import (
    arithmetic,
    control,
    conversion,
    cutting,
    folding,
    logic,
    products,
    reductions,
    reshaping,
    strength,
)

SIMPLIFICATIONS: tuple[Row, ...] = (
    *folding.ROWS,
    *reshaping.ROWS,
    *cutting.ROWS,
    *conversion.ROWS,
    *logic.ROWS,
    *arithmetic.ROWS,
    *products.ROWS,
    *reductions.ROWS,
    *control.ROWS,
    *strength.ROWS,
)
