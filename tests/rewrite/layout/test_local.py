"""What one device of several computes."""

from typing import Any

import pcp
from pcp.ir.operations import operations_of
from pcp.rewrite.layout.rules import laid_out


def test_what_needs_no_batch_may_be_deep() -> None:
    """A piece of it is computed in the part, but not by one call of Python inside of another for each operation."""

    def deep(x: Any) -> Any:
        beside = pcp.arange(8).astype("f32")
        for _ in range(700):
            beside = pcp.sin(beside)
        return x + beside[:, None]

    local = laid_out(pcp.trace(deep, pcp.spec((8, 5), "f32")), "dp", 2)
    assert local.program.results[0].spec.shape == (4, 5)
    assert sum(op.name == "sine" for op in operations_of(local.program)) == 700
