"""Module: a dataclass of arrays and other modules, with a call of its own. There is nothing else to it."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Self, TypeVar, dataclass_transform

from pcp.ir.trees.nodes import is_array
from pcp.ir.types import UnknownDType, dtype_of
from pcp.nn.initializers import InvalidInitializer

BUFFER = "buffer"
_M = TypeVar("_M")


def buffer(**settings: Any) -> Any:
    """A field of a module that no gradient changes: running means, a count. Otherwise as `dataclasses.field`.

    Within a training step a call may assign to it; the step's state carries the new value.
    """
    return dataclasses.field(**settings, metadata={BUFFER: True})


@dataclass_transform(field_specifiers=(dataclasses.field, buffer))
class Module:
    """A layer or a model: a dataclass whose arrays and modules are parameters; all other fields are fixed in a program.

    A subclass is a dataclass without a decorator:

        class Network(pcp.nn.Module):
            layers: list[pcp.nn.Linear]

            def __call__(self, x):
                ...

    It is an argument and a result of `pcp.trace`, `grad`, `training_step` and plans as it is (see `pcp.ir.trees`), a container
    for `map_tree`, and is made and changed as any dataclass, by `dataclasses.replace`.
    """

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(eq=False, repr=False)(cls)

    def eval(self) -> Self:
        """A copy in which `training` is False in all modules: for evaluation."""
        return _walked(self, training=False)

    def train(self) -> Self:
        """A copy in which `training` is True in all modules."""
        return _walked(self, training=True)

    def __repr__(self) -> str:
        entries: dict[str, Any] = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}  # type: ignore[arg-type]  # a subclass
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in entries.items())})"


class Layer(Module):
    """A module whose first field holds arrays; `init` makes one."""

    def __post_init__(self) -> None:
        first = dataclasses.fields(self)[0].name
        value = getattr(self, first)
        if isinstance(value, int | float):
            name = type(self).__name__
            raise InvalidInitializer(
                f"{name} was given {first}={value}; expected arrays, as its fields are: {name}.init(...) makes one from sizes, "
                f"as pcp.nn.Linear.init(0, 784, 256) from a seed, inputs and outputs"
            )


def _shown(value: Any) -> str:
    try:
        return f"{dtype_of(value.dtype)}[{','.join(map(str, value.shape))}]"
    except (AttributeError, UnknownDType):
        return getattr(value, "__name__", repr(value)) if callable(value) else repr(value)


def _walked(model: _M, training: bool) -> _M:
    def changed(module: Any) -> None:
        if hasattr(module, "training"):
            module.training = training

    copied: _M = _copied(model, lambda value, _: value, changed)
    return copied


def _copied(
    value: Any,
    leaf: Callable[[Any, bool], Any],
    changed: Callable[[Any], None] = lambda _: None,
    is_buffer: bool = False,
) -> Any:
    """A copy of nested modules and containers, in which every array is what `leaf` makes of it and whether it is a buffer."""
    if isinstance(value, Module):
        twin = copy.copy(value)
        for each in dataclasses.fields(value):  # type: ignore[arg-type]  # a subclass
            below = is_buffer or bool(each.metadata.get(BUFFER))
            setattr(twin, each.name, _copied(getattr(value, each.name), leaf, changed, below))
        changed(twin)
        return twin
    if isinstance(value, dict):
        return type(value)((key, _copied(child, leaf, changed, is_buffer)) for key, child in value.items())
    if isinstance(value, list | tuple):
        children = [_copied(child, leaf, changed, is_buffer) for child in value]
        return type(value)(*children) if hasattr(value, "_fields") else type(value)(children)
    return leaf(value, is_buffer) if is_array(value) else value


def split(model: Any) -> tuple[Any, Any]:
    """A model's parameters and its buffers: two copies, each with None in the places of the other's arrays.

    Arguments:
        model: a module, or a container of modules.
    """
    parameters = _copied(model, lambda array, is_buffer: None if is_buffer else array)
    return parameters, _copied(model, lambda array, is_buffer: array if is_buffer else None)


def has_buffers(model: Any) -> bool:
    """Whether a field of a module in it is a `buffer` with an array."""
    buffers: list[bool] = []
    _copied(model, lambda _, is_buffer: buffers.append(is_buffer))
    return any(buffers)


def merge(parameters: Any, buffers: Any) -> Any:
    """The model of the two that `split` made, as of `state["params"]` and `state["buffers"]` after training."""
    if isinstance(parameters, Module) and isinstance(buffers, Module):
        model = copy.copy(parameters)
        for each in dataclasses.fields(model):  # type: ignore[arg-type]  # a subclass
            setattr(model, each.name, merge(getattr(parameters, each.name), getattr(buffers, each.name)))
        return model
    if isinstance(parameters, dict) and isinstance(buffers, dict):
        return type(parameters)((key, merge(child, buffers[key])) for key, child in parameters.items())
    if isinstance(parameters, list | tuple) and isinstance(buffers, list | tuple):
        children = [merge(*pair) for pair in zip(parameters, buffers, strict=True)]
        return type(parameters)(*children) if hasattr(parameters, "_fields") else type(parameters)(children)
    return buffers if parameters is None else parameters
