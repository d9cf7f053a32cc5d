"""The first file that a confined process runs: it confines itself, then becomes the module that it was told to be.

`pcp` and its folders are not imported before, because what they import starts threads.
"""

import importlib
import json
import os
import runpy
import sys
import types
from typing import Any

_PACKAGES = ("pcp", "pcp.distributed", "pcp.distributed.sandbox")


def main() -> None:
    """Read the policy in the last argument, confine this process, and run the module."""
    policy: dict[str, Any] = json.loads(sys.argv[1])
    sys.path[:] = policy["path"]
    active = _confined(policy)
    if "module" not in policy:
        print(json.dumps(active), flush=True)
        return
    os.environ["PCP_CONFINED"] = json.dumps(active)
    del sys.argv[1:]
    runpy.run_module(policy["module"], run_name="__main__", alter_sys=True)


def _confined(policy: dict[str, Any]) -> dict[str, str]:
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in reversed(_PACKAGES):
        empty = types.ModuleType(name)
        empty.__path__ = [folder]
        sys.modules[name] = empty
        folder = os.path.dirname(folder)
    try:
        active: dict[str, str] = importlib.import_module("pcp.distributed.sandbox.confine").confine(policy)
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "pcp"]:
            del sys.modules[name]
    return active


if __name__ == "__main__":
    main()
