"""All rewrites, in the order in which they are tried."""

from pcp.rewrite.matmul import RAISE_MATMUL
from pcp.rewrite.row import Row

ROWS: tuple[Row, ...] = (RAISE_MATMUL,)
