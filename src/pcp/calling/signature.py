"""A call of a function taken apart: arrays by the names of their parameters, and what is static."""

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.calling.array import asarray
from pcp.errors import PCPError
from pcp.foreign import is_foreign, is_torch
from pcp.ir import DType, Role, TensorSpec, Tree
from pcp.ir.expecting import WrongArguments, signature_in_short
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.specs import ArgumentSpec, NumberSpec
from pcp.tensor import Tensor, weak_dtype

_WIDE = {DType.f32: DType.f64, DType.i32: DType.i64, DType.c64: DType.c128}
_LARGE = frozenset({"f64", "i64", "u64", "c128"})


class StaticArgument(PCPError):
    """A static argument that cannot be a key, or a name of one that the function does not have."""


class NoArrayGiven(PCPError):
    """An argument of a call that is neither an array, a number nor a container of such."""


Names = Collection[int | str] | int | str | None


def as_names(given: Names) -> tuple[int | str, ...]:
    """Arguments by place or name, as a tuple."""
    return () if given is None else (given,) if isinstance(given, int | str) else tuple(given)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function.

    Arguments:
        names: of the arguments that hold arrays, in order.
        values: these.
        statics: the others, as pairs of name and value.
        key: what is equal for calls that one program serves.
        leaves: the arrays and numbers in `values`, in order.
        specs: of these.
        weak: for each, the element type that it has as a number that meets no tensor; None for arrays.
        tree: how they are nested.
        places: how many of the values were given by place.
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]
    statics: tuple[tuple[str, Any], ...]
    leaves: list[Any]
    specs: tuple[TensorSpec, ...]
    weak: tuple[DType | None, ...]
    tree: Tree
    places: int

    @property
    def key(self) -> Any:
        """Equal for calls that one program serves."""
        statics = tuple((name, type(value), value) for name, value in self.statics)
        fixed = self.tree.exact if self.tree.makes_nodes else ()
        return self.names, self.places, self.tree, fixed, self.specs, self.weak, statics

    def described(self) -> dict[str, str]:
        """What is known of each argument, by name."""
        names = self._leaf_names()
        shown = {
            name: f"{spec}" + (" (a number)" if weak else "")
            for name, spec, weak in zip(names, self.specs, self.weak, strict=True)
        }
        return shown | {name: f"{value!r:.60} (static)" for name, value in self.statics}

    def _leaf_names(self) -> list[str]:
        pairs = zip(self.names, self.tree.children, strict=True)
        return [leaf for name, child in pairs for leaf in child.names(name)]

    def given(self) -> tuple[Any, ...]:
        """The arguments of the program, nested: numbers as arrays of its element types."""
        filled = [
            leaf if weak is None else np.asarray(leaf, spec.dtype.numpy)
            for leaf, spec, weak in zip(self.leaves, self.specs, self.weak, strict=True)
        ]
        return tuple(self.tree.unflatten(filled))

    def takers(self) -> tuple[Any, ...]:
        """Specs nested like the arguments."""
        specs = [
            ArgumentSpec(spec, Role.input) if weak is None else NumberSpec(spec, weak)
            for spec, weak in zip(self.specs, self.weak, strict=True)
        ]
        return tuple(self.tree.unflatten(specs))


class Signature:
    """How a function is called.

    Arguments:
        function: any.
        static: places and names of arguments that are no arrays; each value has a program of its own.
        is_loose: whether it may take other arguments than it says, as a derivative does, which takes tangents, too.

    Raises:
        StaticArgument: the function has no such argument.
    """

    def __init__(
        self, function: Callable[..., Any], static: Sequence[int | str] = (), *, is_loose: bool = False
    ) -> None:
        self._function = function
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # one that is written in C need not say what it takes
            self._signature = None
        self._is_loose = is_loose or self._signature is None
        self.static = frozenset(self.name_of(entry, "static_argnums") for entry in static)

    def name_of(self, entry: int | str, what: str) -> str:
        """The name of the parameter at a place, or of that name."""
        names = [] if self._signature is None else list(self._signature.parameters)
        if isinstance(entry, str) and entry in names:
            return entry
        if isinstance(entry, int) and not isinstance(entry, bool) and -len(names) <= entry < len(names):
            return names[entry]
        raise StaticArgument(
            f"{what} names {entry!r}; expected one of the function's arguments by place or name: "
            f"{', '.join(names) or 'it has none'}"
        )

    def call(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Call:
        """The call taken apart.

        Raises:
            WrongArguments: the function cannot be called so.
            StaticArgument: a static argument cannot be a key.
            NoArrayGiven: an argument is no array, number or container of such.
        """
        flat = self._flat(arguments, named)
        statics = tuple((name, value) for name, value in flat if _head(name) in self.static)
        for name, value in statics:
            _check_static(name, value)
        pairs = [(name, value) for name, value in flat if _head(name) not in self.static]
        names, values = tuple(name for name, _ in pairs), tuple(value for _, value in pairs)
        leaves, tree = flatten(values)
        held = [self._leaf(leaf, names, tree, place) for place, leaf in enumerate(leaves)]
        is_large = any(str(dtype_of(leaf.dtype)) in _LARGE for leaf in held if not _is_number(leaf))
        weak = tuple(weak_dtype(leaf) if _is_number(leaf) else None for leaf in held)
        specs = tuple(
            TensorSpec(tuple(leaf.shape), dtype_of(leaf.dtype))
            if kind is None
            else TensorSpec((), _held_as(leaf, kind, is_large))
            for leaf, kind in zip(held, weak, strict=True)
        )
        return Call(names, values, statics, held, specs, weak, tree, len(arguments))

    def _flat(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> list[tuple[str, Any]]:
        """The arguments that were given, each with the name of its parameter; those of `*x` are `x[0]`, `x[1]`."""
        if self._signature is None or self._is_loose:
            known = [] if self._signature is None else list(self._signature.parameters)
            names = known[: len(arguments)] + [f"argument_{n}" for n in range(len(known), len(arguments))]
            return [*zip(names, arguments, strict=True), *named.items()]
        flat: list[tuple[str, Any]] = []
        try:
            bound = self._signature.bind(*arguments, **named)
        except TypeError as mistake:
            called = getattr(self._function, "__name__", type(self._function).__name__)
            raise WrongArguments(
                f"{called} was called with {len(arguments)} arguments and {', '.join(named) or 'none'} by name: {mistake}; "
                f"expected {called}{signature_in_short(self._signature)}"
            ) from None
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                flat += [(f"{name}[{place}]", entry) for place, entry in enumerate(value)]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                flat += value.items()
            else:
                flat.append((name, value))
        return flat

    def _leaf(self, leaf: Any, names: Sequence[str], tree: Tree, place: int) -> Any:
        if _is_number(leaf):
            return leaf
        if is_torch(leaf) or (is_foreign(leaf) and not hasattr(leaf, "dtype")):
            return asarray(leaf)
        if is_foreign(leaf) and hasattr(leaf, "shape"):
            return leaf
        pairs = zip(names, tree.children, strict=True)
        name = [each for name, child in pairs for each in child.names(name)][place]
        raise NoArrayGiven(
            f"argument {name} is {leaf!r:.60}, a {type(leaf).__name__}; expected arrays, numbers, and containers of such: let "
            "the function close over it, or, if each value may have a program of its own, name it in pcp.jit(f, "
            f"static_argnames={_head(name).partition('.')[0]!r})"
        )

    def applied(self, call: Call, tensors: Sequence[Any]) -> Any:
        """The function called with Tensors, one for each name of the call, and its static arguments."""
        if self._signature is None or self._is_loose:
            rest = zip(call.names[call.places :], tensors[call.places :], strict=True)
            return self._function(*tensors[: call.places], **dict(rest))
        values = dict(zip(call.names, tensors, strict=True)) | dict(call.statics)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        is_broken = False  # an argument before was left to its default
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += [values.pop(each) for each in list(values) if _head(each) == name]
            elif parameter.kind is parameter.VAR_KEYWORD:
                named |= values
            elif name not in values:
                is_broken = True
            elif parameter.kind is parameter.KEYWORD_ONLY or is_broken:
                named[name] = values.pop(name)
            else:
                positional.append(values.pop(name))
        return self._function(*positional, **named)

    def form(self, call: Call) -> Callable[..., Any]:
        """The function of the call's arrays alone, whose parameters have their names."""

        def form(*arguments: Any) -> Any:
            return self.applied(call, arguments)

        functools.update_wrapper(form, self._function)
        kind = inspect.Parameter.POSITIONAL_ONLY
        named = [name.replace("[", "_").replace("]", "") for name in call.names]
        plain = [name if name.isidentifier() else f"argument_{name}" for name in named]
        form.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in plain])  # type: ignore[attr-defined]  # functions may have attributes
        return form


def _head(name: str) -> str:
    return name.partition("[")[0]


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float | complex | np.generic)


def _held_as(number: Any, weak: DType, is_large: bool) -> DType:
    """The element type that a number is given in: a wide one where there are arrays of such."""
    if isinstance(number, np.generic):
        return weak
    beyond = weak is DType.i32 and not -(2**31) <= number < 2**31
    return _WIDE.get(weak, weak) if is_large or beyond else weak


def _check_static(name: str, value: Any) -> None:
    if isinstance(value, Tensor):
        raise StaticArgument(f"argument {name} is static and was given {value!r:.60}; expected no array")
    try:
        hash(value)
    except TypeError:
        raise StaticArgument(
            f"argument {name} is static and was given a {type(value).__name__}, which cannot be a key: give a value that is "
            "hashable, as a tuple in the place of a list"
        ) from None
