"""The border of a Plan: nested arguments of any kind become the flat, checked buffers of its executable."""

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pcp.backends import Backend, Target
from pcp.backends.base import Buffer
from pcp.errors import PCPError
from pcp.foreign import is_foreign, on_host
from pcp.ir import Argument, DType, Program, Role, Tree, TreeMismatch
from pcp.ir.tree import flatten_like
from pcp.ir.types import UnknownDType, dtype_of
from pcp.planning.nesting import OtherNesting, flattener

log = logging.getLogger("pcp.planning.arguments")


class ArgumentMismatch(PCPError):
    """An argument of `Plan.run` that is not what the plan was made for."""


class ArgumentCountMismatch(ArgumentMismatch):
    """More or fewer arguments than the plan takes."""


class ArgumentNameMismatch(ArgumentMismatch):
    """An argument that was given by a name that the plan does not take, or not given at all."""


class ArgumentShapeMismatch(ArgumentMismatch):
    """An array of another shape than the plan's."""


class ArgumentDTypeMismatch(ArgumentMismatch):
    """An array of another element type than the plan's, or no array at all."""


class DonatedArray(PCPError):
    """An array whose memory was given to the results of an earlier call."""


class ArgumentBorder:
    """Flattens and checks the arguments of a plan.

    The common call, with arrays that lie on the device, costs one comparison an argument: what is cheap to
    read of an array (its abstract value) is compared by identity with what was accepted last time.

    Arguments:
        arguments: the arrays that are expected, in order.
        tree: their nesting, a tuple with one entry for each argument of `run`.
        target: whose buffers they become, and where they must lie.
        wide: the element types, by the names of arguments, in which some are taken as well, and rounded.
        axes: along which each is cut over several devices; empty where every device has all of each.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        tree: Tree,
        target: Target,
        wide: Mapping[str, DType] = MappingProxyType({}),
        axes: Sequence[int | None] = (),
    ) -> None:
        self.arguments = arguments
        self._wide = wide
        self._axes = axes or [None] * len(arguments)
        self.tree = tree
        self.names = parameter_names(arguments, tree)
        self._target = target
        self._backend = backend = target.runner
        self._facts: Callable[[Buffer], object] = backend.facts(target)
        self._is_deleted = backend.is_deleted
        self._flatten = flattener(tree)
        self._flatten_exactly = flattener(tree, exact=True) if tree.makes_nodes else self._flatten
        self._accepted: list[object] = [None] * len(arguments)
        self._expected = [(entry.spec.shape, entry.spec.dtype, entry.spec.dtype.numpy) for entry in arguments]

    def admit(self, arguments: tuple[Any, ...]) -> list[Buffer]:
        """The buffers for the arguments of one call.

        Raises:
            TreeMismatch: an argument is nested otherwise.
            ArgumentMismatch: the count, a shape or an element type differs.
            DonatedArray: the memory of an array was given away.
        """
        try:
            leaves = self._flatten(arguments)
        except OtherNesting:
            leaves = self._flatten_carefully(arguments)
        try:
            if list(map(self._facts, leaves)) != self._accepted:
                leaves = self._admit_each(leaves)
        except (AttributeError, TypeError):  # not all are arrays of the backend
            leaves = self._admit_each(leaves)
        if any(map(self._is_deleted, leaves)):
            raise donated(self.arguments, leaves, self._backend)
        return leaves

    def knows(self, arguments: tuple[Any, ...]) -> bool:
        """Whether these are nested as is expected, of the same classes, and arrays of the shapes and element types that are."""
        try:
            leaves = self._flatten_exactly(arguments)
            if list(map(self._facts, leaves)) == self._accepted:
                return True
        except OtherNesting:
            return False
        except (AttributeError, TypeError):  # not all are arrays of the backend
            pass
        return all(map(_is_of, leaves, self._expected))

    def _flatten_carefully(self, arguments: tuple[Any, ...]) -> list[Any]:
        if len(arguments) != len(self.tree.children):
            given = "1 argument was" if len(arguments) == 1 else f"{len(arguments)} arguments were"
            raise ArgumentCountMismatch(
                f"{given} given; the plan takes {len(self.names)}: {', '.join(self.names) or 'none'}"
            )
        leaves: list[Any] = []
        for name, child, value in zip(self.names, self.tree.children, arguments, strict=True):
            leaves += flatten_like(child, value, f"argument {name}")
        return leaves

    def _admit_each(self, leaves: Sequence[Any]) -> list[Buffer]:
        admitted = []
        for index, leaf in enumerate(leaves):
            if self._backend.is_buffer(leaf):
                facts = self._facts(leaf)
                if facts is not self._accepted[index] and facts != self._accepted[index]:
                    leaf = self._place(index, leaf)
                    facts = self._facts(leaf)
                self._accepted[index] = facts
                admitted.append(leaf)
            else:
                admitted.append(self._place(index, leaf))
        return admitted

    def _place(self, index: int, value: Any) -> Buffer:
        """A value of the right shape and element type, on the device."""
        argument, axis = self.arguments[index], self._axes[index]
        array = self._as_array(argument, value)
        if argument.name in self._wide and dtype_of(array.dtype) is self._wide[argument.name]:
            array = np.asarray(array).astype(argument.spec.dtype.numpy)
        check(argument, array)
        if self._backend.is_buffer(array):
            if self._is_deleted(array) or self._target.has(array, axis):
                return array
            log.info("argument %s is copied to %s", argument.name, self._target.places)
        alias = argument.alias is None and argument.role is not Role.state
        return self._target.place(array, argument.spec, alias=alias, axis=axis)

    def _as_array(self, argument: Argument, value: Any) -> Any:
        if self._backend.is_buffer(value) or isinstance(value, np.ndarray | np.generic):
            return value
        if isinstance(value, bool | int | float | complex) and not argument.spec.shape:
            return _scalar(argument, value)
        if is_foreign(value) and hasattr(value, "dtype"):
            return on_host(value)
        raise TreeMismatch(
            f"argument {argument.name} is {_described(value)}; the plan expects an array of {argument.spec}"
        )


def _is_of(leaf: Any, expected: tuple[tuple[int, ...], DType, "np.dtype[Any]"]) -> bool:
    """Whether a leaf is an array of a shape and an element type, as NumPy or PCP names it."""
    shape, dtype, of_numpy = expected
    return getattr(leaf, "shape", None) == shape and (leaf.dtype is dtype or leaf.dtype == of_numpy)


def as_given(argument: Argument, value: Any) -> np.ndarray[Any, Any]:
    """A value as an array of exactly the shape and element type that are expected.

    Raises:
        ArgumentMismatch: it has another shape or element type, or is no array.
    """
    if isinstance(value, bool | int | float | complex) and not argument.spec.shape:
        value = _scalar(argument, value)
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever an array of another library raises
        raise ArgumentDTypeMismatch(
            f"argument {argument.name} is {_described(value)}, which is no array: {error}; expected {argument.spec}"
        ) from None
    if array.dtype.kind in "OSU":
        raise ArgumentDTypeMismatch(
            f"argument {argument.name} is {_described(value)}; expected an array of {argument.spec}"
        )
    check(argument, array)
    return array


def check(argument: Argument, array: Any) -> None:
    """Compare an array with the shape and element type that are expected.

    Raises:
        ArgumentShapeMismatch: the shapes differ.
        ArgumentDTypeMismatch: the element types differ.
    """
    if tuple(array.shape) != argument.spec.shape:
        raise ArgumentShapeMismatch(
            f"argument {argument.name} has shape {tuple(array.shape)}; the plan expects {argument.spec}; "
            f"trace the function again for other shapes{_or_by_symbol(argument, array.shape)}"
        )
    try:
        same = dtype_of(array.dtype) is argument.spec.dtype
    except UnknownDType:
        same = False
    if not same:
        raise ArgumentDTypeMismatch(
            f"argument {argument.name} has element type {array.dtype}; the plan expects {argument.spec}; "
            f"convert it with .astype({argument.spec.dtype.numpy.name!r})"
        )


def _or_by_symbol(argument: Argument, shape: Sequence[int]) -> str:
    """How to trace once for all sizes of the axes on which a shape differs; nothing where the rank differs."""
    expected = argument.spec.shape
    differ = [axis for axis, (a, b) in enumerate(zip(expected, shape, strict=False)) if a != b]
    if len(expected) != len(shape):
        return ""
    sizes: list[int | str] = list(expected)
    for number, axis in enumerate(differ):
        sizes[axis] = "n" if len(differ) == 1 else f"n{number}"
    return f", or once for all sizes: pcp.spec({tuple(sizes)}, {str(argument.spec.dtype)!r})"


def donated(arguments: Sequence[Argument], leaves: Sequence[Buffer], backend: Backend) -> DonatedArray:
    """The error that names the arrays whose memory is gone."""
    gone = [
        argument.name for argument, leaf in zip(arguments, leaves, strict=True) if backend.is_deleted(leaf)
    ]
    more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
    return DonatedArray(
        f"argument {gone[0]}{more} was donated to an earlier call of the plan; use the state it returned"
    )


def parameter_names(arguments: Sequence[Argument], tree: Tree) -> list[str]:
    """A name for every argument of `run`, from the names of its leaves."""
    names = []
    leaves = iter(arguments)
    for index, child in enumerate(tree.children):
        inner = child.names()
        own = [next(leaves).name for _ in inner]
        names.append(own[0].removesuffix(inner[0]).removesuffix(".") if own else str(index))
    return names


def ordered(
    program: Program, bound: int, given: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """All arguments of a call in order, of which some are given by their names.

    Arguments:
        program: what is called.
        bound: how many of its arguments are bound.
        given: those that are given by their places.
        named: the others.

    Raises:
        ArgumentNameMismatch: no argument has a name that is given, or it is given already, or one that is needed is not.
    """
    names = parameter_names(program.arguments, program.argument_tree)
    left = names[bound + len(given) :]
    if sorted(left) == sorted(named):
        return (*given, *(named[name] for name in left))
    wrong = [name for name in named if name not in left]
    missing = [name for name in left if name not in named]
    if not wrong:
        raise ArgumentNameMismatch(
            f"{', '.join(missing)} was not given; the plan takes {', '.join(names[bound:])}"
        )
    near = difflib.get_close_matches(wrong[0], left, 1)
    why = (
        ", where it is bound already"
        if wrong[0] in names[:bound]
        else " twice, by its place and by its name"
        if wrong[0] in names
        else f" (did you mean {near[0]!r}?)"
        if near
        else ""
    )
    raise ArgumentNameMismatch(
        f"argument {wrong[0]!r} was given by its name{why}; the plan takes {', '.join(names[bound:]) or 'no more arguments'}, "
        "by place or by name"
    )


def _scalar(argument: Argument, value: complex) -> Any:
    dtype = argument.spec.dtype
    kinds = ("bool", "signed", "float", "complex")
    kind = "bool" if isinstance(value, bool) else dtype_of(type(value)).kind
    wanted = "signed" if dtype.kind == "unsigned" else dtype.kind
    fits = kinds.index(kind) <= kinds.index(wanted) and (kind == "bool") == (wanted == "bool")
    try:
        return np.asarray(value, dtype.numpy) if fits else np.asarray(value)
    except OverflowError:
        raise ArgumentDTypeMismatch(
            f"argument {argument.name} is {value}, which {dtype} does not hold; "
            f"the plan expects {argument.spec}"
        ) from None


def _described(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, bool | int | float | complex | str):
        return repr(value)
    return f"a {type(value).__name__}"
