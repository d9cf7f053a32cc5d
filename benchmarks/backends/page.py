"""The page of operations by backend: from the cells, and back to which of them it says do not run."""

import re
from collections.abc import Iterable, Mapping

from benchmarks.backends.cells import Cell
from benchmarks.backends.operations import TYPES
from pcp.ir import DType

GROUPS: dict[str, tuple[DType, ...]] = {
    "all": TYPES,
    "integers": tuple(dtype for dtype in TYPES if dtype.is_integer),
    "floats": tuple(dtype for dtype in TYPES if dtype.is_float),
    "complex": tuple(dtype for dtype in TYPES if dtype.kind == "complex"),
}
"""Words for element types that stand together."""
_HEAD = """\
# Operations by backend

Which operation of StableHLO and CHLO runs in which element type. Every cell was run on random operands and compared with
StableHLO's own interpreter, or with NumPy in wider numbers where the interpreter lacks the operation. A cell names the types
that do not run or are wrong, and the note that says why; an empty one means that all of the row's types are right.
`python -m benchmarks matrix` writes this page; a test holds it to a random sample of its cells.

"Integers" are `i8` to `i64` and `u8` to `u64`, "floats" `bf16`, `f16`, `f32` and `f64`, "complex" `c64` and `c128`.

IREE's Vulkan loses what lies behind the last whole 32-bit word of an array: of six elements of `u8` the last two are read as
0, or not written. Where a cell is wrong for that, it is right on operands that are 0 there.

"arena, torch" is the arena with PyTorch, which here computes all that it can; in a plan it leaves small arrays to NumPy.

Not here: operations that speak to other devices or to the outside, that draw from a machine's own generator, or that PCP
writes out as others before a backend sees them.
"""


def page_of(columns: Mapping[str, Mapping[Cell, str]]) -> str:
    """The page for what is wrong with each cell, by the name of a backend's column."""
    cells = next(iter(columns.values()), {})
    notes: dict[str, int] = {}
    rows = []
    for name in dict.fromkeys(name for name, _ in cells):
        types = [dtype for other, dtype in cells if other == name]
        shown = [_failures(name, types, column, notes) for column in columns.values()]
        rows.append(f"| {name} | {_words(types)} | {' | '.join(shown)} |")
    works = " | ".join(
        f"{sum(not wrong for wrong in column.values())} of {len(column)}" for column in columns.values()
    )
    return "\n".join(
        [
            _HEAD,
            f"| operation | types | {' | '.join(columns)} |",
            "|---" * (2 + len(columns)) + "|",
            f"| right | | {works} |",
            *rows,
            "",
            *(f"{number}. {reason}" for reason, number in notes.items()),
            "",
        ]
    )


def _failures(name: str, types: list[DType], column: Mapping[Cell, str], notes: dict[str, int]) -> str:
    by_reason: dict[str, list[DType]] = {}
    for dtype in types:
        if column[name, dtype]:
            by_reason.setdefault(reason_of(column[name, dtype]), []).append(dtype)
    return "; ".join(
        f"{_words(failed)} ({notes.setdefault(reason, len(notes) + 1)})"
        for reason, failed in by_reason.items()
    )


def reason_of(wrong: str) -> str:
    """What is wrong with a cell, without what differs from operation to operation."""
    if wrong.startswith("wrong"):
        return "wrong numbers"
    if "gives wrong numbers" in wrong:
        return "16-bit floats are refused, since IREE gives wrong numbers for them there"
    if "its compiler ended" in wrong:
        return "IREE's compiler crashes"
    symbols = re.findall(r"undefined symbol: \w+", wrong)
    if symbols:
        return "IREE's library for compiled code lacks an elementary function of this type"
    found = re.search(r"error: ([^\n]*)", wrong) or re.search(r"IREE refuses .*?: ([^\n]*)", wrong)
    said = (
        (found[1] if found else wrong.partition("\n")[0]).partition("; ")[0].partition(" operation; got")[0]
    )
    said = re.sub(r":? (%|\"?loc\().*|that was explicitly marked illegal.*", "", said)
    return said[:120].replace("|", "/").strip(" ;:")


def _words(types: Iterable[DType]) -> str:
    """Element types, with one word for those that stand together."""
    left, words = list(types), []
    for word, group in GROUPS.items():
        if set(group) <= set(left):
            words.append(word)
            left = [dtype for dtype in left if dtype not in group]
    return ", ".join([*words, *(f"`{dtype}`" for dtype in left)])


def said_by(page: str) -> dict[str, dict[Cell, bool]]:
    """For each column of a page, whether it says that a cell is right."""
    lines = [
        [cell.strip() for cell in line.strip()[1:-1].split("|")]
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    (_, _, *columns), _, *rows = lines
    found: dict[str, dict[Cell, bool]] = {column: {} for column in columns}
    for name, types, *shown in rows:
        for column, failures in zip(columns, shown, strict=True):
            failed = _types_in(failures)
            found[column] |= {(name, dtype): dtype not in failed for dtype in _types_in(types)}
    return found


def _types_in(words: str) -> set[DType]:
    named = re.findall(r"[a-z]\w+", re.sub(r"\(\d+\)", "", words))
    return {dtype for word in named for dtype in GROUPS.get(word, ()) or (DType(word),)}
