"""From a module to a graph of ATen operations that stand in the table, by `torch.export`."""

import contextlib
import functools
import gc
import importlib
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pcp.errors import PCPError
from pcp.importers.torch.own_derivatives import OwnDerivative, own_derivatives_refused
from pcp.importers.torch.table import IGNORED, TABLE

_LOG = logging.getLogger("pcp.importers.torch")


class TorchMissing(PCPError):
    """PyTorch is not installed."""


class CannotExport(PCPError):
    """A module that `torch.export` cannot trace, or that no graph of tensors stands for."""


def torch_package() -> Any:
    """PyTorch, which is imported only when it is asked for.

    Raises:
        TorchMissing: it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TorchMissing(
            "from_torch needs PyTorch, which is not installed; install it as https://pytorch.org describes for this machine "
            "(pip install torch), version 2.6 or later"
        ) from None


def exported(module: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The `ExportedProgram` of a module, decomposed until every operation has a row in the table, where that is possible.

    Raises:
        OwnDerivative: something in the module changes gradients in a way that no graph holds.
        CannotExport: `torch.export` refuses the module.
    """
    torch = torch_package()
    with warnings.catch_warnings(record=True) as caught, _without_collecting():
        warnings.simplefilter("always")
        try:
            with own_derivatives_refused(torch, module):
                program = torch.export.export(module, tuple(arguments), dict(keywords))
            _stop_gradients(torch, program.graph_module)
            if _is_composed_of_rows(torch, program.graph_module):
                _dissolve_blocks(torch, program.graph_module)
            else:
                program = program.run_decompositions(dict(_decompositions()))  # which takes some out of it
        except OwnDerivative:
            raise
        except Exception as error:
            first = "\n".join(str(error).strip().splitlines()[:12])
            raise CannotExport(
                f"torch.export refuses {type(module).__name__}: {type(error).__name__}: {first}\n"
                f"{_advice(error, arguments, keywords)}"
            ) from error
    for warning in caught:
        _LOG.info("torch.export: %s", warning.message)
    return program


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Let no cycle be looked for meanwhile: with PyTorch and JAX imported that takes a fifth of the time, and finds little."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_OWN = (TypeError, ValueError, AttributeError, KeyError, IndexError)
"""What Python code raises for arguments that it does not take. Exceptions of PyTorch's are subclasses or others."""


def _advice(error: Exception, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """What to do about something that an export raised."""
    if "not a known type" in str(error):
        return (
            "expected results that are tensors in lists, tuples, dictionaries and dataclasses; of transformers, leave "
            "use_cache out: from_torch imports the model without its cache of keys and values"
        )
    if type(error) not in _OWN:
        return "expected a module whose control flow does not depend on the values of tensors"
    given = [_described(entry) for entry in arguments]
    given += [f"{name}={_described(entry)}" for name, entry in keywords.items()]
    return (
        f"the module raises this itself where it is called with ({', '.join(given)}); give from_torch the arguments that the "
        "module takes, as it is called: from_torch(model, input_ids=tokens), with tensors, arrays or pcp.spec(shape, dtype)"
    )


def _described(value: Any) -> str:
    if hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """PyTorch's own decompositions of whatever has no row in the table."""
    torch = torch_package()
    table = importlib.import_module("torch._decomp").decomposition_table
    # What `torch._refs` defines ends in operations of another dialect, below ATen.
    further = {
        op: function for op, function in table.items() if not function.__module__.startswith("torch._refs")
    }
    known = {**further, **dict(torch.export.default_decompositions().items())}
    kept = {name for name, row in TABLE.items() if not row.is_composed}
    return {op: function for op, function in known.items() if str(op).removeprefix("aten.") not in kept}


def _is_composed_of_rows(torch: Any, graph_module: Any) -> bool:
    """Whether every operation of a graph, and of the `no_grad` blocks in it, has a row, and none writes into a tensor: then no
    view has to be followed, and nothing is left to decompose.
    """
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if node.target is _no_grad_block(torch):
            if not _is_composed_of_rows(torch, getattr(graph_module, node.args[1].target)):
                return False
            continue
        name, schema = str(node.target).removeprefix("aten."), getattr(node.target, "_schema", None)
        is_known = name.split(".")[0] in IGNORED or (name in TABLE and TABLE[name].computes(node))
        if schema is None or schema.is_mutable or not is_known:
            return False
    return True


def _dissolve_blocks(torch: Any, graph_module: Any) -> None:
    """Put what is in `no_grad` blocks in their places, as decomposition does; what leaves one is detached already."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.target is not _no_grad_block(torch):
            continue
        block, arguments = getattr(graph_module, node.args[1].target), node.args[2:]
        _dissolve_blocks(torch, block)
        inner = (entry for entry in block.graph.nodes if entry.op == "placeholder")
        places = dict(zip(inner, arguments, strict=True))
        with graph.inserting_before(node):
            results = graph.graph_copy(block.graph, places)
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
    graph.eliminate_dead_code()


def _no_grad_block(torch: Any) -> Any:
    return torch.ops.higher_order.wrap_with_set_grad_enabled


def _stop_gradients(torch: Any, graph_module: Any) -> None:
    """Detach what leaves a `no_grad` block: decomposition dissolves the block, and gradients would flow through it."""
    graph = graph_module.graph
    wrapped = _no_grad_block(torch)
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not wrapped or node.args[0]:
            continue
        for result in list(node.users):
            with graph.inserting_after(result):
                detached = graph.call_function(torch.ops.aten.detach.default, (result,))
            detached.meta = {key: result.meta[key] for key in ("val", "stack_trace") if key in result.meta}
            result.replace_all_uses_with(detached, delete_user_cb=lambda user, d=detached: user is not d)
    graph_module.recompile()
