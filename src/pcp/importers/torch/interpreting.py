"""Walking a graph of ATen operations, one row of the table after another."""

import functools
import importlib
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.importers.torch import rows as rows  # the table is filled by importing them
from pcp.importers.torch.element_types import DynamicShape, dtype_from_torch, spec_from_torch
from pcp.importers.torch.exporting import torch_package
from pcp.importers.torch.table import IGNORED, TABLE, Row
from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ops import convert, random
from pcp.tensor import Tensor, current_builder

_WITHOUT_MEANING = ("device", "layout", "pin_memory", "memory_format", "generator", "sparse_grad")
_PROMOTIONS = {"default": "DEFAULT", "int_to_float": "INT_TO_FLOAT", "bool": "ALWAYS_BOOL"}


class UnsupportedOperations(PCPError):
    """Operations of PyTorch that no row of the table computes."""


class CannotImport(PCPError):
    """An operation whose operands its row refuses."""


class RandomWithoutSeed(PCPError):
    """A module that draws random numbers, without a seed."""


def user_line(node: Any) -> str:
    """Where in the user's code an operation comes from: the innermost frame outside of PyTorch, or what is known."""
    lines = (node.meta.get("stack_trace") or "").splitlines()
    frames = [i for i, line in enumerate(lines) if line.lstrip().startswith("File ")]
    own = [i for i in frames if not any(folder in lines[i] for folder in _internal_folders())] or frames
    return "\n".join(line.strip() for line in lines[own[-1] : own[-1] + 2]) if own else "an unknown place"


@functools.cache
def _internal_folders() -> tuple[str, str]:
    return str(Path(torch_package().__file__).parent), str(Path(__file__).parent)


def operation_name(node: Any) -> str:
    """The name of a node's operation as the table has it: `add.Tensor`."""
    target = node.args[1] if str(node.target) == "with_effects" else node.target
    return str(target).removeprefix("aten.")


def check_supported(graph: Any, has_seed: bool) -> None:
    """See whether every operation of a graph has a row.

    Raises:
        DynamicShape: the size of a tensor depends on the values of others.
        UnsupportedOperations: some have none; the message lists all of them with the lines that they come from.
        RandomWithoutSeed: some draw random numbers, and there is no seed.
    """
    for node in graph.nodes:
        if not all(isinstance(size, int) for size in getattr(node.meta.get("val"), "shape", ())):
            raise DynamicShape(
                f"{operation_name(node)} gives a tensor of shape {tuple(node.meta['val'].shape)}, which depends on the values "
                f"of tensors; expected sizes that are known: use torch.where instead of a mask\n  from {user_line(node)}"
            )
    missing: dict[str, list[str]] = {}
    drawing: dict[str, list[str]] = {}
    for node in graph.nodes:
        name = operation_name(node)
        if node.op != "call_function" or node.target is operator.getitem or name.split(".")[0] in IGNORED:
            continue
        if name not in TABLE:
            missing.setdefault(name, []).append(user_line(node))
        elif TABLE[name].draws(node):
            drawing.setdefault(name, []).append(user_line(node))
    if missing:
        raise UnsupportedOperations(
            f"{len(missing)} operations of this module have no counterpart in PCP:\n{_listed(missing)}\n"
            "write the computation with other operations, or add a row for each: pcp.importers.torch.table.row"
        )
    if drawing and not has_seed:
        raise RandomWithoutSeed(
            f"this module draws random numbers:\n{_listed(drawing)}\n"
            "call module.eval() to leave dropout out, or give from_torch a seed: the generator's key becomes a buffer"
        )


def _listed(places: Mapping[str, list[str]]) -> str:
    shown = []
    for name, lines in places.items():
        distinct = list(dict.fromkeys(lines))
        more = [f"and {len(distinct) - 3} more places"] if len(distinct) > 3 else []
        shown.append("\n    ".join([f"  {name}", *"\n".join([*distinct[:3], *more]).splitlines()]))
    return "\n".join(shown)


class Interpreter:
    """Computes the nodes of a graph with Tensors, inside a trace.

    Arguments:
        key: of a random generator, if the graph draws from one; `key` is afterwards the one to go on with.
    """

    def __init__(self, key: Tensor | None) -> None:
        self.key = key
        self._values: dict[Any, Any] = {}

    def run(self, graph: Any, inputs: Mapping[str, Any], attribute: Callable[[str], Any]) -> list[Any]:
        """The results of a graph whose placeholders have the given values."""
        for node in graph.nodes:
            if node.op == "placeholder":
                self._values[node] = inputs[node.name]
            elif node.op == "get_attr":
                self._values[node] = attribute(node.target)
            elif node.op == "output":
                return [self._value(entry) for entry in node.args[0]]
            elif node.target is operator.getitem:
                self._values[node] = self._values[node.args[0]][node.args[1]]
            elif operation_name(node) in TABLE:
                self._values[node] = self._called(node)
        raise CannotImport("the graph has no output; export the module again")

    def _called(self, node: Any) -> Any:
        name = operation_name(node)
        row = TABLE[name]
        wanted = _wanted(node)
        builder = current_builder()
        outer, builder.pinned = builder.pinned, _location(node, name)
        try:
            if row.is_contiguous:
                _check_contiguous(node.args[0].meta["val"])
            result = row.function(*self._arguments(node, row), **self._keywords(node, row, wanted))
            return _converted(result, wanted)
        except PCPError as error:
            raise CannotImport(f"{name}: {error}\n  from {user_line(node)}") from error
        finally:
            builder.pinned = outer

    def _arguments(self, node: Any, row: Row) -> list[Any]:
        values = [self._value(entry) for entry in node.args]
        if row.promotion is None:
            return values
        dtype = _common_type(node, row.promotion)
        return [convert(entry, dtype) if isinstance(entry, Tensor) else entry for entry in values]

    def _keywords(self, node: Any, row: Row, wanted: Any) -> dict[str, Any]:
        values = {
            key: self._value(entry)
            for key, entry in node.kwargs.items()
            if key not in _WITHOUT_MEANING and not (key == "dtype" and entry is None)
        }
        if row.promotion is not None:
            dtype = _common_type(node, row.promotion)
            values = {k: convert(v, dtype) if isinstance(v, Tensor) else v for k, v in values.items()}
        if row.knows_result:
            values["result"] = wanted
        if row.draws(node):
            assert self.key is not None  # check_supported saw to it
            keys = random.split(self.key)
            self.key, values["key"] = keys[0], keys[1]
        return values

    def _value(self, entry: Any) -> Any:
        if isinstance(entry, list | tuple):
            return [self._value(part) for part in entry]
        if hasattr(entry, "op") and hasattr(entry, "graph"):
            return self._values[entry]
        return dtype_from_torch(entry) if type(entry).__name__ == "dtype" else entry


def _check_contiguous(x: Any) -> None:
    lies_alone = x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * x.element_size()
    if not (x.is_contiguous() and lies_alone):
        raise CannotImport(
            f"the operand has strides {x.stride()} for shape {tuple(x.shape)} at place {x.storage_offset()} of its memory; "
            "expected a tensor that lies there in one piece, alone: use .clone() or .contiguous() before"
        )


def _wanted(node: Any) -> Any:
    """The spec of what a node gives; of several results a tuple, with None for those that nothing uses."""
    value = node.meta.get("val")
    if not isinstance(value, list | tuple):
        return spec_from_torch(value)
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    return tuple(spec_from_torch(entry) if i in used else None for i, entry in enumerate(value))


def _converted(result: Any, wanted: Any) -> Any:
    if isinstance(wanted, tuple):
        return [None if spec is None else _converted(f, spec) for f, spec in zip(result, wanted, strict=True)]
    if result.shape != wanted.shape:
        raise CannotImport(
            f"the row gives shape {result.shape}; PyTorch gives {wanted.shape}; the row is wrong"
        )
    return convert(result, wanted.dtype)


def _common_type(node: Any, promotion: str) -> DType:
    """The element type in which PyTorch computes an elementwise operation."""
    conventions = importlib.import_module("torch._prims_common")
    kind = getattr(conventions.ELEMENTWISE_TYPE_PROMOTION_KIND, _PROMOTIONS[promotion])
    entries = [e.meta["val"] if hasattr(e, "meta") else e for e in (*node.args, *node.kwargs.values())]
    values = [e for e in entries if hasattr(e, "dtype") or isinstance(e, bool | int | float | complex)]
    computed, _ = conventions.elementwise_dtypes(*values, type_promotion_kind=kind)
    return dtype_from_torch(computed)


def _location(node: Any, name: str) -> ir.Location:
    place = user_line(node).splitlines()[0]
    if not place.startswith('File "'):
        return ir.Location.name(name)
    file, _, rest = place.removeprefix('File "').partition('", line ')
    line = rest.split(",")[0]
    return ir.Location.name(name, ir.Location.file(file, int(line) if line.isdigit() else 0, 0))
