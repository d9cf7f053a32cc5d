"""Which tests skip themselves without a package that `make install` does not bring: `make test-peers` runs those alone."""

import ast
import functools
from pathlib import Path

import pytest

INSTALLED = {"pip", "setuptools", "starlette", "uvicorn"}
"""What tests ask for though `make install` brings it: some run where it was not."""
PEERS = Path(__file__).parents[1] / "peers"


def needs_optional(item: pytest.Item) -> bool:
    """Whether a test runs only where optional packages are."""
    if item.path.is_relative_to(PEERS):
        return True
    every, tests = _asking(item.path)
    return every or getattr(item, "originalname", item.name) in tests


@functools.cache
def _asking(file: Path) -> tuple[bool, frozenset[str]]:
    """Whether any test of a file may need such a package, else the names of those that ask for one themselves."""
    asking = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if _asks(node)]
    tests = {
        node.name for node in asking if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    return len(tests) < len(asking), frozenset(tests)


def _asks(statement: ast.stmt) -> bool:
    """Whether a statement skips tests without a package that is not installed, or one that it names by no constant."""
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(attr="importorskip"), args=[ast.Constant(package), *_]):
                if package not in INSTALLED:
                    return True
            case ast.Call(func=ast.Attribute(attr="importorskip")):
                return True
    return False
