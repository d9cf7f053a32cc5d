"""What the placeholders and outputs of an exported graph stand for: weights, buffers, constants, inputs, results."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pcp.errors import PCPError
from pcp.importers.torch.arrays import CONSTANTS, Arrays, array_from_torch, plain_containers
from pcp.importers.torch.element_types import spec_from_torch
from pcp.importers.torch.exporting import torch_package
from pcp.ir import Role
from pcp.tensor import Tensor, as_tensor
from pcp.tracing import ArgumentSpec

_LOG = logging.getLogger("pcp.importers.torch")


class MutatedInput(PCPError):
    """A module that writes into its arguments or parameters."""


class ConstantInContainer(PCPError):
    """A number or string nested among the tensors of an argument."""


class Signature:
    """The border of an exported graph.

    Arguments:
        module: what was exported.
        program: the `ExportedProgram`.
        arguments: the examples it was exported with, positional ones and then those by name.
    """

    def __init__(self, module: Any, program: Any, arguments: Sequence[Any]) -> None:
        self._program = program
        self._entries = list(program.graph_signature.input_specs)
        self._pytree = torch_package().utils._pytree
        used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
        self.changed = self._changed()
        first = _first_names(module)
        parameters = dict(module.named_parameters(remove_duplicate=False))
        # If none is trainable, all are just weights.
        frozen = any(p.requires_grad for p in parameters.values())
        self.weights: Arrays = {}
        self.buffers: Arrays = {}
        self._sources: dict[str, tuple[str, str]] = {}
        for entry in self._entries:
            kind, name = entry.kind.name, first.get(entry.target, entry.target)
            if kind not in ("PARAMETER", "BUFFER"):
                continue
            if entry.arg.name not in used and entry.target not in self.changed:
                _LOG.info("%s is left out: nothing reads it", entry.target)
                continue
            tensor = module.get_parameter(name) if name in parameters else module.get_buffer(name)
            is_weight = (
                name in parameters and tensor.is_floating_point() and (tensor.requires_grad or not frozen)
            )
            (self.weights if is_weight else self.buffers)[name] = array_from_torch(tensor)
            self._sources[entry.arg.name] = ("weights" if is_weight else "buffers", name)
        self._inputs(arguments)

    def _changed(self) -> list[str]:
        changed = []
        for entry in self._program.graph_signature.output_specs:
            if entry.kind.name == "BUFFER_MUTATION":
                changed.append(entry.target)
            elif entry.kind.name != "USER_OUTPUT":
                raise MutatedInput(
                    f"the module writes into {entry.target} ({entry.kind.name}); expected only buffers to be written into: "
                    "work on a clone"
                )
        return changed

    def _inputs(self, arguments: Sequence[Any]) -> None:
        """Which arguments hold tensors, their specs, and where in them each placeholder finds its own."""
        self.specs: list[Any] = []
        self.places: list[int] = []
        leaves: list[tuple[int | None, Any]] = []
        for number, argument in enumerate(arguments):
            with_paths, _ = self._pytree.tree_flatten_with_path(argument)
            is_constant = isinstance(argument, CONSTANTS)
            leaves.extend((None if is_constant else len(self.specs), path) for path, _ in with_paths)
            if not is_constant:
                self.places.append(number)
                self.specs.append(plain_containers(argument, _spec_of))
        names = [entry.arg.name for entry in self._entries if entry.kind.name == "USER_INPUT"]
        self._paths = dict(zip(names, leaves, strict=True))

    def values(
        self, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Sequence[Any]
    ) -> dict[str, Any]:
        """What every placeholder stands for, by its name."""
        held = {"weights": weights, "buffers": buffers}
        by_name: dict[str, Any] = {}
        for entry in self._entries:
            name = entry.arg.name
            if name in self._sources:
                group, source = self._sources[name]
                by_name[name] = held[group][source]
            elif name in self._paths:
                argument, path = self._paths[name]
                by_name[name] = None if argument is None else _at(inputs[argument], path)
            else:
                by_name[name] = self._constant(entry)
        return by_name

    def _constant(self, entry: Any) -> Tensor | None:
        value = self._program.constants.get(entry.target)
        if value is None:
            return None  # of something that nothing reads
        return as_tensor(array_from_torch(value))

    def attribute(self, name: str) -> Any:
        """The value of a constant that stands in the graph itself."""
        value = getattr(self._program.graph_module, name)
        return as_tensor(array_from_torch(value)) if hasattr(value, "shape") else value

    def results(self, returned: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        """The new values of buffers that are changed, and the module's output."""
        outputs = self._program.graph_signature.output_specs
        new = {
            entry.target: value
            for entry, value in zip(outputs, returned, strict=True)
            if entry.kind.name == "BUFFER_MUTATION"
        }
        leaves = returned[len(new) :]
        output = self._pytree.tree_unflatten(leaves, self._program.call_spec.out_spec)
        return new, plain_containers(output, lambda leaf: leaf)


def _spec_of(tensor: Any) -> Any:
    if tensor is None:
        return None
    if not hasattr(tensor, "shape"):
        raise ConstantInContainer(
            f"{tensor!r} stands among the tensors of an argument; expected tensors alone: give it as an argument of its own"
        )
    own = spec_from_torch(tensor)
    return ArgumentSpec(own, Role.input)


def _at(value: Any, path: Sequence[Any]) -> Any:
    """The leaf of nested containers that a path of PyTorch's leads to."""
    for step in path:
        for attribute in ("idx", "key", "name"):
            if hasattr(step, attribute):
                value = value[getattr(step, attribute)]
                break
    return value


def _first_names(module: Any) -> dict[str, str]:
    """For every name of a parameter or buffer the first name that the same tensor has."""
    first: dict[int, str] = {}
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}
