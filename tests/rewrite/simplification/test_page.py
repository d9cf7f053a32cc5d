"""The page about rewrites lists every row with its algebra, which stands in a comment beside the row."""

import ast
from pathlib import Path

from pcp import rewrite
from pcp.rewrite.row import Row
from pcp.rewrite.simplification import SIMPLIFICATIONS, folding

SOURCE = Path(rewrite.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "rewrites.md"


def algebra() -> dict[str, str]:
    """What the comment at the end of each row in a table says, by the row's name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Row":
                name, last = node.args[0], lines[(node.end_lineno or 0) - 1]
                if isinstance(name, ast.Constant) and "  # " in last:
                    found[str(name.value)] = last.partition("  # ")[2]
    return found


def line(row: Row, meaning: str) -> str:
    return f"| `{row.name}` | {meaning} | {row.effect} |"


def is_fold(row: Row) -> bool:
    return row.name.startswith("fold_")


def test_every_row_has_its_algebra_in_a_comment_and_a_line_on_the_page() -> None:
    meanings, page = algebra(), PAGE.read_text(encoding="utf-8").splitlines()
    rows = [row for row in SIMPLIFICATIONS if not is_fold(row)]
    assert [row.name for row in rows if row.name not in meanings] == []
    assert [wanted for row in rows if (wanted := line(row, meanings[row.name])) not in page] == []


def test_the_page_lists_no_row_that_is_gone() -> None:
    listed = [
        entry.split("`")[1]
        for entry in PAGE.read_text(encoding="utf-8").splitlines()
        if entry.startswith("| `")
    ]
    known = [row.name for row in SIMPLIFICATIONS]
    assert [name for name in listed if name not in known] == []
    assert len(set(listed)) == len(listed)


def test_the_page_names_what_is_folded() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    folded = [row.name.removeprefix("fold_") for row in folding.ROWS]
    assert ", ".join(f"`{name}`" for name in folded) in page
