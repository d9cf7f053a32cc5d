"""The page about rewrites lists every row with its algebra, which stands in a comment beside the row, or above it."""

import ast
from pathlib import Path

from pcp import rewrite
from pcp.rewrite.row import Row
from pcp.rewrite.simplification import SIMPLIFICATIONS, folding

SOURCE = Path(rewrite.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "rewrites.md"


def algebra() -> dict[str, str]:
    """What the comment at the end of each row in a table says, or the one above it, by the row's name."""
    makers, meanings = {"Row", "exact", "reassociating"}, {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                name, above, last = node.args[0], lines[node.lineno - 2], lines[(node.end_lineno or 0) - 1]
                comment = last if "  # " in last else above if above.startswith("    # ") else ""
                if isinstance(name, ast.Constant) and comment:
                    meanings[str(name.value)] = comment.partition("  # ")[2]
    return meanings


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
