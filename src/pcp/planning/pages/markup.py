"""HTML from text: whatever is not markup already is escaped, so names and lines of files stay text."""

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: object) -> Markup:
    """An element; `class_` and `view_box` stand for `class` and `viewBox`."""
    shown = "".join(
        f' {_NAMES.get(key, key.replace("_", "-"))}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{shown}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Parts beside one another."""
    return Markup("".join(part if isinstance(part, Markup) else html.escape(part) for part in parts))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Markup:
    """A table, in a box that scrolls where it is too wide.

    Arguments:
        numbers: the columns that hold numbers.
    """

    def row(cells: Sequence[str], name: str) -> Markup:
        kinds = ({"class_": "number"} if column in numbers else {} for column in range(len(cells)))
        return tag("tr", *(tag(name, cell, **kind) for cell, kind in zip(cells, kinds, strict=True)))

    body = tag("tbody", *(row(cells, "td") for cells in rows))
    return tag("div", tag("table", tag("thead", row(head, "th")), body), class_="wide")


def folded(summary: str, *inside: str, is_open: bool = False) -> Markup:
    """What is shown when it is asked for."""
    shown = tag("details", tag("summary", summary), *inside)
    return Markup(shown.replace("<details>", "<details open>", 1)) if is_open else shown


_NAMES = {"class_": "class", "view_box": "viewBox"}

STYLE = """
.pcp-page { --ink: #1a1c20; --soft: #5c6370; --line: #d5d9e0; --fill: #3b6fb6; --back: #f3f5f8; color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; max-width: 1100px; text-align: left; }
.pcp-page h2, .pcp-page p, .pcp-page summary { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { .pcp-page { --ink: #e4e7ec; --soft: #a3abb8; --line: #3b414c; --fill: #7ba7e0;
  --back: #23272e; } }
[data-jp-theme-light="true"] .pcp-page { --ink: #1a1c20; --soft: #5c6370; --line: #d5d9e0; --fill: #3b6fb6; --back: #f3f5f8; }
[data-jp-theme-light="false"] .pcp-page { --ink: #e4e7ec; --soft: #a3abb8; --line: #3b414c; --fill: #7ba7e0; --back: #23272e; }
.pcp-page h2 { font-size: 17px; margin: 0 0 4px; } .pcp-page h3 { font-size: 15px; margin: 18px 0 6px; }
.pcp-page p { margin: 4px 0; } .pcp-page .soft { color: var(--soft); }
.pcp-page .wide { overflow-x: auto; } .pcp-page table { border-collapse: collapse; margin: 0; font-size: 13px; }
.pcp-page th, .pcp-page td { border-bottom: 1px solid var(--line); padding: 3px 14px 3px 0; text-align: left;
  vertical-align: top; background: none; white-space: normal; }
.pcp-page th { color: var(--soft); font-weight: 600; } .pcp-page .number { text-align: right; white-space: nowrap; }
.pcp-page details { border-left: 2px solid var(--line); padding-left: 10px; margin: 4px 0; }
.pcp-page summary { cursor: pointer; } .pcp-page pre { background: var(--back); color: var(--ink); padding: 8px; margin: 4px 0;
  overflow-x: auto; font: 12px/1.4 ui-monospace, monospace; white-space: pre; }
.pcp-page svg { display: block; width: 100%; height: auto; max-width: 1000px; }
.pcp-page svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.pcp-page svg.curve { height: 150px; border-bottom: 1px solid var(--line); }
.pcp-page svg * { vector-effect: non-scaling-stroke; }
.pcp-page .area { fill: var(--fill); fill-opacity: .35; stroke: var(--fill); stroke-width: 1; }
.pcp-page .held { fill: var(--soft); fill-opacity: .25; } .pcp-page .axis { stroke: var(--line); }
.pcp-page .link { fill: none; stroke: var(--fill); stroke-opacity: .5; }
.pcp-page .node { fill: var(--back); stroke: var(--soft); }
"""

DOCUMENT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>body {{ margin: 0 auto; padding: 16px; max-width: 1100px; background: Canvas; }}</style></head>
<body>{body}</body></html>
"""
