"""A program as users write them, that runs a kernel: what is right in a verifying process only shows here.

It is copied to a folder of its own under another name, and started there by nobody who is still running: no limits, no module,
argument or variable tells that it is no program of a user's. Nothing is judged here.
"""

import functools
import importlib.util
import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Run what the file beside this one says."""
    folder = Path(__file__).parent
    try:
        with open(folder / "settings", "rb") as file:
            source = pickle.load(file)
            sys.path[1:1] = source
            settings = pickle.load(file)
        _run(settings)
        said = {}
    except Exception as error:  # whatever somebody else's function raises
        said = {"error": f"{type(error).__name__}: {error}"[:600]}
    (folder / "done.new").write_text(json.dumps(said))
    os.replace(folder / "done.new", folder / "done")


def _run(settings: dict[str, Any]) -> None:
    import numpy as np

    from pcp.backends import Target
    from pcp.backends.jax_function import JAXFunction

    file = settings["file"]
    described = importlib.util.spec_from_file_location(file.stem, file)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    described.loader.exec_module(module)
    function = getattr(module, settings["function"])
    # In another order than elsewhere, as what a function becomes may depend on what it became before.
    texts = [_text(functools.partial(function, **told), specs) for told, specs in settings["lowered"][::-1]]
    Path(settings["texts"]).write_text(json.dumps(texts[::-1]))
    for (told, specs), arguments, calls, file in settings["tasks"]:
        executable = JAXFunction(functools.partial(function, **told), specs, Target.of(settings["device"]))
        ends = time.monotonic() + settings["seconds"]
        with open(file, "wb") as results:
            for count in range(calls):
                [result] = executable.run(arguments[count % len(arguments)])
                results.write(np.ascontiguousarray(np.asarray(result)).tobytes())
                if count >= len(arguments) and time.monotonic() > ends:
                    break


def _text(function: Any, specs: list[Any]) -> str:
    from pcp.kernels.jax_lowering import NotLowered, lowered_text

    try:
        return lowered_text(function, specs)
    except NotLowered as error:
        return f"it cannot be lowered: {error}"[:600]


if __name__ == "__main__":
    main()
