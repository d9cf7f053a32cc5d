"""The pages name every family of kernels, and every native kernel and library."""

from pathlib import Path

import pytest

from pcp.kernels import FAMILIES
from pcp.kernels.native.libraries import LIBRARIES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "kernels.md",
            sorted(name for name in FAMILIES if not name.endswith("_gradient") or FAMILIES[name].pattern),
        ),
        ("native_kernels.md", sorted(LIBRARIES)),
        (
            "native_kernels.md",
            sorted(
                each.partition(".")[0]
                for family in FAMILIES.values()
                for each in family.kernels
                if ".native" in each and "_gradient" not in each
            ),
        ),
    ],
    ids=["families", "libraries", "native kernels"],
)
def test_a_page_names_all_of_them(page: str, names: list[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text and f"`{name}.native" not in text] == []
