"""Which arguments a program is differentiated for."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pcp.errors import PCPError
from pcp.ir import Argument, Program, Tree
from pcp.ir.tree import flatten
from pcp.refusals import planned
from pcp.tensor import Tensor, is_tracing
from pcp.tracing import call, specs_of, trace_closure

Wrt = int | Sequence[int]
"""The arguments to differentiate for, counted at the top level: one or several."""


_W = TypeVar("_W")


class NotDifferentiable(PCPError):
    """An argument of integers or booleans that a gradient was asked for."""


class UnknownArgument(PCPError):
    """A `wrt` that names no argument of the program."""


def chosen(wrt: _W, argnums: Wrt | None, usual: Wrt | None) -> _W | Wrt:
    """What `wrt` or `argnums`, its name in JAX, says.

    Raises:
        UnknownArgument: both say something.
    """
    if argnums is None:
        return wrt
    if wrt != usual:
        raise UnknownArgument(
            f"wrt={wrt!r} and argnums={argnums!r} were given, which mean the same; give one"
        )
    return argnums


def every_differentiable(program: Program) -> list[int]:
    """The arguments whose leaves are all floating-point or complex."""
    return [
        index
        for index, (leaves, _) in enumerate(_top_level(program))
        if leaves and _undifferentiable(program, leaves) is None
    ]


def from_the_front(wrt: Wrt, count: int) -> Wrt:
    """`wrt` with arguments that are named from the end, of `count`, named from the front."""
    if isinstance(wrt, int):
        return wrt + count if wrt < 0 else wrt
    return [place + count if place < 0 else place for place in wrt]


def with_tensors(arguments: Sequence[Any], wrt: Wrt) -> list[Any]:
    """The arguments, with specs in place of those that `wrt` names: what is differentiated for is no number, but a Tensor."""
    named = (wrt,) if isinstance(wrt, int) else wrt
    return [specs_of(argument) if place in named else argument for place, argument in enumerate(arguments)]


def on_functions(
    function: Callable[..., Any],
    wrt: Wrt | None,
    transform: Callable[[Program, Wrt], Program],
    takes_tangents: bool = False,
) -> Callable[..., Any]:
    """A transformation of Programs as one of functions of Tensors. Outside of any trace, what it makes computes with arrays.

    Arguments:
        function: takes and returns nested Tensors; it may use Tensors of the trace around it.
        wrt: the arguments that the transformation is told; None for all, which only tangents allow.
        transform: from a Program and the arguments' places to a Program.
        takes_tangents: whether the made function takes one more argument for each that `wrt` names, after its own.

    Keyword arguments of the made function are those of the function; it is not differentiated for them.
    """

    @functools.wraps(function)
    def transformed(*arguments: Any, **rest: Any) -> Any:
        if not is_tracing():
            return planned()(transformed, arguments, rest)
        count = len(arguments)
        named = range(count // 2) if wrt is None else wrt
        if takes_tangents:
            count -= 1 if isinstance(named, int) else len(named)
        primals, tangents = arguments[:count], arguments[count:]
        # Captured Tensors are arguments behind those of the function; they are not counted from the end.
        places = from_the_front(named, count)
        taken, beside = _with_named(function, count, rest)
        program, captured = trace_closure(taken, *with_tensors(primals, places), *beside)
        return call(transform(program, places), *primals, *beside, *captured, *tangents)

    return transformed


def _with_named(
    function: Callable[..., Any], count: int, named: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """A function of its first arguments, so many, and then of the named ones that are Tensors, which JAX may have to trace; and
    these. Other named ones are as they are."""
    if not named:
        return function, []
    shown = [
        name
        for name, value in named.items()
        if (leaves := flatten(value)[0]) and all(isinstance(leaf, Tensor) for leaf in leaves)
    ]

    @functools.wraps(function)
    def taken(*arguments: Any) -> Any:
        given = dict(zip(shown, arguments[count:], strict=True))
        return function(*arguments[:count], **{**named, **given})

    return taken, [named[name] for name in shown]


def pulled_back(
    function: Callable[..., Any], wrt: Wrt | None, transform: Callable[[Program, Wrt], Program]
) -> Callable[..., Any]:
    """As `on_functions`, for a transformation whose Programs take the cotangents of all results after their own arguments.

    How many arguments are the function's own follows from how many results it has.
    """

    @functools.wraps(function)
    def transformed(*arguments: Any, **rest: Any) -> Any:
        if not is_tracing():
            return planned()(transformed, arguments, rest)
        signature = inspect.signature(function)
        for count in range(len(arguments) - 1, 0, -1):
            try:
                signature.bind(*arguments[:count], **rest)
            except TypeError:
                continue
            places = list(range(count)) if wrt is None else from_the_front(wrt, count)
            taken, beside = _with_named(function, count, rest)
            program, captured = trace_closure(taken, *with_tensors(arguments[:count], places), *beside)
            if sum(entry.spec.dtype.is_differentiable for entry in program.results) == len(arguments) - count:
                return call(
                    transform(program, places), *arguments[:count], *beside, *captured, *arguments[count:]
                )
        raise UnknownArgument(
            f"vjp of {getattr(function, '__name__', 'a function')} was given {len(arguments)} arguments; expected those of the "
            "function, and then the cotangent of each of its results of floating-point or complex numbers"
        )

    return transformed


def _top_level(program: Program) -> list[tuple[list[int], Tree]]:
    """For each top-level argument, which leaves it has and how they are nested."""
    nested, start = [], 0
    for child in program.argument_tree.children:
        nested.append((list(range(start, start + child.leaf_count)), child))
        start += child.leaf_count
    return nested


def chosen_leaves(program: Program, wrt: Wrt) -> tuple[list[int], Tree]:
    """The leaves of the arguments that `wrt` names, and the nesting of their gradients.

    Raises:
        UnknownArgument: `wrt` names no argument, or one twice.
        NotDifferentiable: an argument that it names has leaves of integers or booleans.
    """
    arguments = _top_level(program)
    chosen = []
    for index in (wrt,) if isinstance(wrt, int) else wrt:
        if (
            isinstance(index, bool)
            or not isinstance(index, int)
            or not -len(arguments) <= index < len(arguments)
        ):
            raise UnknownArgument(
                f"wrt={wrt!r} names argument {index!r}; the program has {len(arguments)}, counted from 0"
            )
        leaves, tree = arguments[index]
        wrong = _undifferentiable(program, leaves)
        if wrong is not None:
            raise NotDifferentiable(
                f"wrt={wrt!r} names argument {index}, but {wrong.name} is {wrong.spec}; only floating-point and complex "
                "numbers have gradients: name another argument, or convert it before"
            )
        chosen.append((leaves, tree))
    if len({leaf for leaves, _ in chosen for leaf in leaves}) != sum(len(leaves) for leaves, _ in chosen):
        raise UnknownArgument(f"wrt={wrt!r} names the same argument twice")
    if isinstance(wrt, int):
        return chosen[0]
    return [leaf for leaves, _ in chosen for leaf in leaves], Tree(
        "tuple", (), tuple(tree for _, tree in chosen)
    )


def _undifferentiable(program: Program, leaves: Sequence[int]) -> Argument | None:
    """The first of these arguments that has no gradient."""
    return next(
        (program.arguments[i] for i in leaves if not program.arguments[i].spec.dtype.is_differentiable), None
    )
