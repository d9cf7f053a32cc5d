"""Somebody else's file of python, executed: in processes that are made for it only."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def executed(file: Path, name: str) -> ModuleType:
    """The module that a file makes under a name; what lies beside it can be imported there, now and later.

    Raises:
        Exception: whatever it raises.
    """
    described = importlib.util.spec_from_file_location(name, file)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    described.loader.exec_module(module)
    return module
