"""A program as users write them, that runs a kernel: what is right in a verifying process only shows here.

It is copied to a folder of its own under another name, and started there by nobody who is still running: no limits, no module,
argument or variable tells that it is no program of a user's. Nothing is judged here.
"""

import functools
import importlib.util
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Run what the file beside this one says."""
    folder = Path(__file__).parent
    settings = json.loads((folder / "settings.json").read_text())
    try:
        _run(settings)
        said = {}
    except Exception as error:  # whatever somebody else's function raises
        said = {"error": f"{type(error).__name__}: {error}"[:600]}
    (folder / "done.new").write_text(json.dumps(said))
    os.replace(folder / "done.new", folder / "done")


def _run(settings: dict[str, object]) -> None:
    sys.path[1:1] = settings["source"]  # type: ignore[misc]  # of a file that PCP wrote
    import numpy as np

    from pcp import backends
    from pcp.backends.jax_function import JAXFunction
    from pcp.ir import TensorSpec
    from pcp.ir.types import dtype_of

    device = backends.device(str(settings["device"]))
    file = Path(str(settings["file"]))
    described = importlib.util.spec_from_file_location(file.stem, file)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    described.loader.exec_module(module)
    function = getattr(module, str(settings["function"]))
    problems: list[dict[str, object]] = settings["problems"]  # type: ignore[assignment]  # of a file that PCP wrote
    for each in problems:
        given: list[list[object]] = each["specs"]  # type: ignore[assignment]  # as above
        specs = [TensorSpec(tuple(shape), dtype_of(dtype)) for shape, dtype in given]  # type: ignore[arg-type]  # as above
        attributes: dict[str, object] = each["attributes"]  # type: ignore[assignment]  # as above
        words = {name: _tuples(value) for name, value in attributes.items()}
        executable = JAXFunction(functools.partial(function, **words), specs, device)
        inputs: list[str] = each["inputs"]  # type: ignore[assignment]  # as above
        arrays = [
            np.fromfile(path, spec.dtype.numpy).reshape(-1, *spec.shape)
            for path, spec in zip(inputs, specs, strict=True)
        ]
        with open(str(each["results"]), "wb") as results:
            for which in range(len(arrays[0])):
                [result] = executable.run([array[which] for array in arrays])
                results.write(np.ascontiguousarray(np.asarray(result)).tobytes())


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
