"""Derivatives and batches of functions that are called outside of any trace."""

import functools
from collections.abc import Callable
from typing import Any

from pcp.calling.programs import plan_of
from pcp.calling.signature import Signature
from pcp.ir.tree import flatten
from pcp.tracing import ArgumentSpec, OpenArgument, trace, trace_closure


def outside(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """What a function that must be called inside a trace returns for arrays; for specs, its Program.

    It is traced in every call, because what it reads may have changed; a program that was planned before is not planned again.

    Raises:
        NoArrayGiven: an argument is neither an array, a number nor a container of such.
        PCPError: what the function raises where it is traced, and what `pcp.plan` and `Plan.run` raise.
    """
    if any(isinstance(leaf, ArgumentSpec | OpenArgument) for leaf in flatten((arguments, named))[0]):
        return trace(functools.partial(function, **named) if named else function, *arguments)
    signature = Signature(function, is_loose=True)
    call = signature.call(arguments, named)
    program, _ = trace_closure(signature.form(call), *call.takers())
    return plan_of(program, {}).call(*call.given())
