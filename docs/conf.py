"""How Sphinx builds these pages: `make docs`."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.util.typing import stringify_annotation

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from pcp.autodiff.coverage import as_markdown
from pcp.ir.types import DTypeLike
from pcp.tensor import TensorLike

project = "PCP"
author = "The PCP authors"
copyright = "The PCP authors, MIT licence"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["build"]
# A block says its language; commands and what they print have none.
highlight_language = "none"
html_theme = "furo"
html_title = "PCP, the Planetary Compute Protocol"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["width.css"]

# Words in single backticks are code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
add_module_names = False
napoleon_custom_sections = [("State", "notes_style"), ("Source", "notes_style")]
myst_heading_anchors = 3


def plain(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with code in backticks; keep what else means something in reStructuredText from doing so."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        # Every second part is code.
        parts[::2] = [re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
        lines[number] = re.sub(r"(`[^`]*`)(?=\w)", r"\1\\ ", "`".join(parts))


def aliased(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, arguments: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Signatures with the names of type aliases, not what they stand for."""
    for written, name in ALIASES.items():
        arguments = arguments and arguments.replace(written, name)
        returns = returns and returns.replace(written, name)
    return arguments, returns


def with_table(_app: Any, page: str, text: list[str]) -> None:
    """The page of derivatives ends with what the records of operations say."""
    if page == "derivatives":
        text[0] += f"\n{as_markdown()}\n"


ALIASES = {
    stringify_annotation(alias, mode): name
    for alias, name in ((TensorLike, "TensorLike"), (DTypeLike, "DTypeLike"))
    for mode in ("smart", "fully-qualified-except-typing", "fully-qualified")
}


def setup(app: Any) -> None:
    """Register what this file adds to Sphinx."""
    # Before napoleon, which makes reStructuredText of sections.
    app.connect("autodoc-process-docstring", plain, priority=100)
    app.connect("autodoc-process-signature", aliased)
    app.connect("source-read", with_table)
