"""What `torch.export` made with dynamic shapes, as a module and arguments whose sizes are symbols of PCP."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pcp.importers.torch.element_types import dtype_from_torch
from pcp.importers.torch.exporting import torch_package
from pcp.tracing import spec

Opened = tuple[Any, Sequence[Any], Mapping[str, Any], tuple[str, ...]]


def of_exported(module: Any, inputs: Sequence[Any], keywords: Mapping[str, Any] | None) -> Opened:
    """The module of an `ExportedProgram`, the specs of its arguments, and the ranges of its dynamic sizes as constraints.

    Arguments:
        module: an `ExportedProgram`; anything else is returned as it is, with the arguments and without constraints.
        inputs, keywords: arguments in the place of the export's own, as specs with better names for sizes than its `s77`.
    """
    if not isinstance(module, torch_package().export.ExportedProgram):
        return module, inputs, keywords or {}, ()
    if inputs or keywords:
        return module.module(), inputs, keywords or {}, ()
    values = {node.name: node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"}
    leaves = [_spec(values.get(name, name)) for name in module.graph_signature.user_inputs]
    trees = importlib.import_module("torch.utils._pytree")
    args, named = trees.tree_unflatten(leaves, module.call_spec.in_spec)
    constraints = []
    for symbol, bounds in module.range_constraints.items():
        if str(symbol).isidentifier():
            for sign, bound in ((">=", bounds.lower), ("<=", bounds.upper)):
                if getattr(bound, "is_Integer", False) and int(bound) > 1:
                    constraints.append(f"{symbol} {sign} {int(bound)}")
    return module.module(), args, named, tuple(constraints)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Arguments with what a function makes of each leaf: of whatever is no plain list, tuple or dictionary."""
    if isinstance(value, dict):
        return {key: mapped(function, entry) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped(function, entry) for entry in value)
    return function(value)


def _spec(value: Any) -> Any:
    if not hasattr(value, "shape"):
        return value
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return spec(shape, dtype_from_torch(value.dtype))
