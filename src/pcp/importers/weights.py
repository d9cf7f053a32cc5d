"""Weights by name from safetensors files straight to a device.

The file is mapped into memory, and each tensor goes from there to the device in one copy; no other is made. The arrays do not
share memory with the file, because whoever changes that would change them, unless they are asked for where they lie.
"""

import difflib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcp import backends
from pcp.errors import PCPError
from pcp.ir import Program, Role, TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.ir.types import UnknownDType, dtype_of
from pcp.models.names import WeightsMismatch
from pcp.tracing import leaf_spec
from pcp.training.data.safetensors_file import Array, map_arrays

log = logging.getLogger("pcp.importers.weights")

_INDEX = ".safetensors.index.json"
_LISTED = 6


class WeightsUnreadable(PCPError):
    """A file of weights that is not there, or a file that is no index of weights."""


class NoWeights(PCPError):
    """A program without arguments that are weights."""


def load_weights(
    path: str | Path,
    like: Any,
    device: str | None = None,
    *,
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    allow_unused: bool = False,
    mapped: bool = False,
) -> Any:
    """The weights of a program from safetensors files, on a device, or in the files.

    Arguments:
        path: a file `*.safetensors`; or the index `*.safetensors.index.json` of several; or a folder that holds
            `model.safetensors` or its index.
        like: a Program, of which the arguments that are weights throughout are meant; or nested arrays or `pcp.spec`s.
        device: `cpu:0`, `cuda:1`; if None, what PCP_DEVICE says, or `cpu:0`.
        rename: from a name in `like` to the name in the file; names that a mapping lacks are the same. Names in `like` are
            dotted, `blocks.0.weight`; where a program has several arguments of weights, they begin with that of the argument.
        allow_unused: whether the file may hold more.
        mapped: whether the weights stay in the files, to be read when they are used, as `pcp.plan(..., mapped=...)` takes them.
            Then they are read-only arrays of NumPy, on no device, and the files must not change while they live.

    Returns:
        Arrays on the device, nested like `like`; of a program, like its argument, or a tuple where there are several.

    Raises:
        WeightsMismatch: tensors are missing, unexpected, or of another shape or element type; the message lists them.
        WeightsUnreadable: a file is absent, or what should be the index is none.
        SafetensorsForeign, SafetensorsTruncated, SafetensorsCorrupt: a file is no sound safetensors file.
        NoWeights: the program has no arguments that are weights.
    """
    specs, names, tree = _wanted(like)
    tensors = map_weights(Path(path))
    sources = [_renamed(name, rename) for name in names]
    _check(Path(path), dict(zip(sources, specs, strict=True)), tensors, allow_unused)
    if mapped:
        return tree.unflatten([tensors[source] for source in sources])
    target = backends.Target.of(device)
    arrays = [target.place(tensors[source], spec) for source, spec in zip(sources, specs, strict=True)]
    log.info("placed %d tensors of %s on %s", len(arrays), path, target.places)
    return tree.unflatten(arrays)


def _wanted(like: Any) -> tuple[list[TensorSpec], list[str], Tree]:
    """Shape, name in the program and nesting of what is to be loaded."""
    if not isinstance(like, Program):
        leaves, tree = flatten(like)
        return [leaf_spec(leaf).spec for leaf in leaves], tree.names(), tree
    specs: list[TensorSpec] = []
    names: list[str] = []
    children: list[Tree] = []
    start = 0
    for child in like.argument_tree.children:
        entries = like.arguments[start : start + child.leaf_count]
        start += child.leaf_count
        if entries and all(entry.role is Role.weight for entry in entries):
            specs += [entry.spec for entry in entries]
            names += [entry.name for entry in entries]
            children.append(child)
    if not children:
        raise NoWeights(
            "the program has no argument that consists of weights only; give nested pcp.spec(...) instead of the program"
        )
    if len(children) == 1:
        return specs, children[0].names() if children[0].kind != "leaf" else names, children[0]
    return specs, names, Tree("tuple", (), tuple(children))


def _renamed(name: str, rename: Mapping[str, str] | Callable[[str], str] | None) -> str:
    if rename is None:
        return name
    return rename.get(name, name) if isinstance(rename, Mapping) else rename(name)


def map_weights(path: Path) -> dict[str, Array]:
    """Views of all tensors in a file, in the files of an index, or in a folder; arguments and errors as of `load_weights`."""
    if path.is_dir():
        index = path / f"model{_INDEX}"
        path = index if index.exists() else path / "model.safetensors"
    try:
        if not path.name.endswith(_INDEX):
            return map_arrays(path)
        places = _places(path)
        shards = {file: map_arrays(path.parent / file) for file in sorted(set(places.values()))}
    except FileNotFoundError as error:
        if path.name.endswith(_INDEX) and path.exists():
            raise WeightsUnreadable(
                f"{path} places tensors in {error.filename}, which is not there; copy that file to the folder, or save "
                "the model again"
            ) from None
        raise WeightsUnreadable(
            f"there is no file {error.filename}; give a file of weights, *.safetensors, an index of several, "
            f"*{_INDEX}, or their folder"
        ) from None
    absent = [name for name, file in places.items() if name not in shards[file]]
    if absent:
        raise WeightsUnreadable(f"{path} places {_few(absent)} in files that do not hold them")
    return {name: shards[file][name] for name, file in places.items()}


def _places(path: Path) -> dict[str, str]:
    """Which file of an index holds each tensor."""
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"].items()
        return {str(name): _sibling(file) for name, file in places}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WeightsUnreadable(
            f"{path} is not an index of safetensors files; expected names mapped to files under 'weight_map': {error!r}"
        ) from None


def _sibling(file: str) -> str:
    if file != Path(file).name:
        raise ValueError(f"{file!r} is not the name of a file beside the index")
    return file


def _check(path: Path, wanted: dict[str, TensorSpec], tensors: dict[str, Array], allow_unused: bool) -> None:
    unused = [name for name in tensors if name not in wanted]
    missing = [name for name in wanted if name not in tensors]
    problems = [
        f"missing: {_few([name + _near(name, unused) for name in missing])}" if missing else "",
        f"unexpected: {_few([name + _near(name, missing) for name in unused])}"
        if unused and not allow_unused
        else "",
    ]
    misshapen = [
        f"{name} is {array.dtype}{list(array.shape)}, expected {spec}"
        for name, spec in wanted.items()
        if (array := tensors.get(name)) is not None and not _fits(array, spec)
    ]
    problems.append(f"wrong shape or element type: {_few(misshapen)}" if misshapen else "")
    differences = [problem for problem in problems if problem]
    if differences:
        advice = (
            "; map names with rename=, or leave tensors out with allow_unused=True"
            if missing or unused
            else ""
        )
        raise WeightsMismatch("\n  ".join([f"{path} does not hold these weights{advice}:", *differences]))


def _fits(array: Array, spec: TensorSpec) -> bool:
    try:
        return array.shape == spec.shape and dtype_of(array.dtype) is spec.dtype
    except UnknownDType:
        return False


def _near(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f" (like {close[0]}?)" if close else ""


def _few(names: list[str]) -> str:
    rest = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} ({', '.join(names[:_LISTED])}{rest})"
