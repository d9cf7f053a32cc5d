"""How every operation is run: one table, from the files of the families."""

from pcp.backends.arena.lowerings import (
    control,
    elementwise,
    indexing,
    movement,
    norms,
    outside,
    products,
    reductions,
    solvers,
    sorting,
    transforms,
    windows,
)
from pcp.backends.arena.recording import Lowering

FAMILIES = (
    elementwise,
    movement,
    reductions,
    norms,
    products,
    windows,
    indexing,
    sorting,
    solvers,
    transforms,
    control,
    outside,
)
LOWERINGS: dict[str, Lowering] = {
    f"stablehlo.{name}": lowering for family in FAMILIES for name, lowering in family.LOWERINGS.items()
}
"""The lowering of each operation, by full name."""
