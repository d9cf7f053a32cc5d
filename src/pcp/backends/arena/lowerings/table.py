"""How every operation is run: one table, from the files of the families."""

from pcp.backends.arena.lowerings import (
    control,
    elementwise,
    indexing,
    movement,
    outside,
    products,
    reductions,
    solvers,
    sorting,
    windows,
)
from pcp.backends.arena.recording import Lowering

FAMILIES = (
    elementwise,
    movement,
    reductions,
    products,
    windows,
    indexing,
    sorting,
    solvers,
    control,
    outside,
)
LOWERINGS: dict[str, Lowering] = {
    f"stablehlo.{name}": lowering for family in FAMILIES for name, lowering in family.LOWERINGS.items()
}
"""The lowering of each operation, by full name."""
