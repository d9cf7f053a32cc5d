"""No kernel without rows that it is verified at, and problems that it is measured on."""

from pcp.kernels import FAMILIES, sites_of
from pcp.kernels.problems import DEFINITIONS
from tests.kernels.rows import ROWS, program_of

BY_PROBLEMS = {"product"}
"""Families whose kernels are verified on their problems alone."""
BY_ROWS = {"batch_normalisation", "convolution", "dropout", "max_pool_gradient", "quantised_product"}
"""Families whose kernels are verified at their rows alone: no problem has such attributes, or operands of such types."""


def base_of(family: str) -> str:
    """The family that a family of gradients belongs to; another is its own."""
    return next((name for name, each in FAMILIES.items() if each.gradient == family), family)


def test_every_family_has_rows_and_problems() -> None:
    for name in FAMILIES:
        assert base_of(name) in ROWS or name in BY_PROBLEMS, f"{name} has no row in tests/kernels/rows.py"
        if FAMILIES[name].pattern is None:  # what comes from outside stands for one operation
            known = {*DEFINITIONS, *BY_ROWS}
            assert base_of(name) in known, f"{name} has no problems in kernels/problems.py"


def test_every_kernel_that_can_be_had_here_stands_at_a_row() -> None:
    for family in ("normalisation", "batch_normalisation", "softmax", "cross_entropy", "embedding_gradient"):
        standing = {
            name for row in ROWS[family] for site in sites_of(program_of(row), "cpu") for name in site.kernels
        }
        for name in {family, FAMILIES[family].gradient} - {""}:
            for kernel in FAMILIES[name].kernels.values():
                assert kernel.name in standing or kernel.lacks("cpu"), f"{kernel.name} stands at no row"
