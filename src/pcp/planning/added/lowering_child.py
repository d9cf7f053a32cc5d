"""The child that lowers a kernel from outside: `python -m pcp.planning.added.lowering_child`, for `lowering` only.

It executes somebody else's file, so it ends after one function, and what it writes is text that its parent reads as such.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcp.ir import TensorSpec
from pcp.kernels.jax_lowering import lowered_text
from pcp.planning.added.triton_compiling import compiled_kernel, said_by
from pcp.processes.parent import Parent
from pcp.processes.stranger import executed
from pcp.systems import leave_no_core, limit_address_space


def main() -> None:
    """Lower what is asked for; the answer is one line."""
    parent = Parent()
    [request] = parent.asks()
    leave_no_core()
    limit_address_space(request["memory_bytes"])
    file = Path(request["file"])
    try:
        module = executed(file, file.stem)
        answer = {"made": [_made(module, request, *task) for task in request["tasks"]]}
    except Exception as error:  # whatever somebody else's file raises
        answer = _failed(error)
    parent.say(**answer)


def _made(module: Any, request: dict[str, Any], *task: Any) -> dict[str, Any]:
    try:
        return {"text": _text(module, request, *task)}
    except Exception as error:  # whatever somebody else's function raises
        return _failed(error)


def _failed(error: Exception) -> dict[str, Any]:
    return {"error": said_by(error)[:600]}


def _text(
    module: Any,
    request: dict[str, Any],
    attributes: dict[str, Any],
    specs: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
) -> str:
    """StableHLO of a function of JAX arrays; of a kernel in Triton PTX, and how it is launched, as JSON."""
    name, capability = request["function"], request["capability"]
    if capability is not None:
        return json.dumps(compiled_kernel(module, name, specs, results, capability, Path(request["folder"])))
    function = functools.partial(getattr(module, name), **attributes)
    return lowered_text(function, specs, request["platform"])


if __name__ == "__main__":
    main()
