"""Losses with buffers: values beside the parameters that no gradient reaches, such as the running means of normalisation."""

from dataclasses import dataclass
from typing import Any

from pcp.ir import Program, Role
from pcp.tracing import call, spec, trace


@dataclass(frozen=True, slots=True)
class LossWithBuffers:
    """A loss and how it treats its second argument.

    Arguments:
        program: `(parameters, batch...)` or `(parameters, buffers, batch...)` to a scalar or a pair of it and anything. If the
            loss changes buffers, the second of the pair is `{"buffers": ..., "metrics": ...}`.
        has_buffers: whether the second argument is buffers.
        changes: whether the loss makes new ones.
    """

    program: Program
    has_buffers: bool
    changes: bool


def loss_with_buffers(program: Program) -> LossWithBuffers:
    """Find the buffers of a loss: its second argument, if that is state; or if it is weights and what follows is input.

    Arguments:
        program: a loss; one whose second argument is state returns `(new buffers, loss)`, or `(new buffers, (loss, metrics))`.
    """
    roles = _roles(program)
    if len(roles) > 1 and roles[1] == {Role.state}:
        return LossWithBuffers(_with_loss_first(program), True, True)
    is_frozen = len(roles) > 2 and roles[1] == {Role.weight} and all(r == {Role.input} for r in roles[2:])
    return LossWithBuffers(program, is_frozen, False)


def _roles(program: Program) -> list[set[Role]]:
    """The roles of the leaves of every top-level argument."""
    roles, start = [], 0
    for child in program.argument_tree.children:
        roles.append({entry.role for entry in program.arguments[start : start + child.leaf_count]})
        start += child.leaf_count
    return roles


def _with_loss_first(program: Program) -> Program:
    specs = program.argument_tree.unflatten(
        [spec(entry.spec.shape, entry.spec.dtype) for entry in program.arguments]
    )

    def loss_first(*arguments: Any) -> Any:
        buffers, result = call(program, *arguments)
        loss, metrics = result if isinstance(result, tuple) else (result, {})
        return loss, {"buffers": buffers, "metrics": metrics}

    return trace(loss_first, *specs)
