"""The child that lowers a kernel from outside: `python -m pcp.planning.added.lowering_child`, for `lowering` only.

It executes somebody else's file, so it ends after one function, and what it writes is text that its parent reads as such.
"""

import functools
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from pcp.kernels.jax_lowering import lowered_text
from pcp.planning.added.triton_compiling import compiled_kernel, said_by
from pcp.planning.measuring.child import limit_memory
from pcp.planning.measuring.request import specs_from, tuples


def main() -> None:
    """Lower what standard input says; the answer is one JSON object in the file that it names."""
    request = json.loads(sys.stdin.read())
    limit_memory(request["memory_bytes"], "cpu")
    file = Path(request["file"])
    try:
        described = importlib.util.spec_from_file_location(file.stem, file)
        assert described is not None
        assert described.loader is not None
        module = importlib.util.module_from_spec(described)
        sys.modules[file.stem] = module
        sys.path.insert(0, str(file.parent))
        described.loader.exec_module(module)
        answer = {"made": [_made(module, request, *task) for task in request["tasks"]]}
    except Exception as error:  # whatever somebody else's file raises
        answer = _failed(error)
    Path(request["answer"]).write_text(json.dumps(answer))


def _made(
    module: Any, request: dict[str, Any], attributes: dict[str, Any], specs: list[Any]
) -> dict[str, Any]:
    try:
        return {"text": _text(module, request, attributes, specs)}
    except Exception as error:  # whatever somebody else's function raises
        return _failed(error)


def _failed(error: Exception) -> dict[str, Any]:
    return {"error": said_by(error)[:600]}


def _text(module: Any, request: dict[str, Any], told: dict[str, Any], described: list[Any]) -> str:
    """StableHLO of a function of JAX arrays; of a kernel in Triton PTX, and how it is launched, as JSON."""
    specs, triton = specs_from(described), request["triton"]
    if triton is not None:
        results, folder = specs_from(triton["results"]), Path(request["answer"]).parent
        return json.dumps(
            compiled_kernel(module, request["function"], specs, results, triton["capability"], folder)
        )
    attributes = {name: tuples(value) for name, value in told.items()}
    function = functools.partial(getattr(module, request["function"]), **attributes)
    return lowered_text(function, specs, request["platform"])


if __name__ == "__main__":
    main()
