"""The child that lowers a kernel from outside: `python -m pcp.planning.added.lowering_child`, for `lowering` only.

It executes somebody else's file, so it ends after one function, and what it writes is text that its parent reads as such.
"""

import functools
import importlib.util
import json
import os
import sys
from pathlib import Path

from pcp.kernels.jax_lowering import lowered_text
from pcp.planning.measuring.request import specs_from, tuples
from pcp.systems import leave_no_core


def main() -> None:
    """Lower what standard input says; the answer is one JSON object in the file that it names."""
    request = json.loads(sys.stdin.read())
    os.dup2(2, 1)
    leave_no_core()
    file = Path(request["file"])
    try:
        described = importlib.util.spec_from_file_location(file.stem, file)
        assert described is not None
        assert described.loader is not None
        module = importlib.util.module_from_spec(described)
        sys.modules[file.stem] = module
        sys.path.insert(0, str(file.parent))
        described.loader.exec_module(module)
        attributes = {name: tuples(value) for name, value in request["attributes"].items()}
        function = functools.partial(getattr(module, request["function"]), **attributes)
        answer = {"text": lowered_text(function, specs_from(request["specs"]))}
    except Exception as error:  # whatever somebody else's file raises
        answer = {"error": f"{type(error).__name__}: {error}"[:600]}
    Path(request["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
