"""AutoDiffPlan: a Plan that is run forward, and then backward as often as wanted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.autodiff import two_phases
from pcp.backends.base import Buffer
from pcp.errors import PCPError
from pcp.ir.tree import flatten
from pcp.planning.arguments import ArgumentCountMismatch
from pcp.planning.plan import Plan, plan


class NoPreviousForward(PCPError):
    """`backward` was called before any `forward`."""


class MissingCotangents(PCPError):
    """`backward` was called without cotangents, though the result is not one real number."""


class AutoDiffPlan:
    """A Plan with its gradients. The forward pass keeps what the backward pass reads, so that nothing is computed twice.

    The program and its vector-Jacobian product are split into two: one returns residuals besides the results, the other takes
    them and the cotangents. State is not donated, because the backward pass may need it.

    Arguments:
        forward: what to differentiate; both passes are compiled for its device.
        wrt: the arguments of its program to differentiate for, counted at the top level: one or several. None takes every
            argument whose leaves are all floating-point or complex.

    Raises:
        UnknownArgument: `wrt` names no argument.
        NotDifferentiable: an argument that `wrt` names has leaves of integers or booleans.
        NoDerivative: an operation on the way has no rule.
        OutOfMemory: a pass does not fit in the device's memory.
    """

    def __init__(self, forward: Plan, wrt: int | Sequence[int] | None = None) -> None:
        self.plan = forward
        program = forward.program
        self._phases = two_phases(program, wrt)
        self.forward_plan = plan(self._phases.forward, forward.target.with_options({})).bind(*forward.bound)
        self.backward_plan = plan(self._phases.backward, forward.target.with_options({}))
        self._kept: tuple[list[Buffer], list[Buffer]] | None = None

    def forward(self, *arguments: Any) -> Any:
        """The results for the arguments that the plan's `run` takes; what an earlier `forward` kept is dropped.

        Raises:
            TreeMismatch, ArgumentMismatch, OutOfMemory: as `Plan.run`.
        """
        placed = self.forward_plan.place(*arguments)
        results, residuals = self.forward_plan.run(*placed)
        inputs, _ = flatten((*self.forward_plan.bound, *placed))
        returned, _ = flatten(results)
        self._kept = (
            [inputs[i] for i in self._phases.kept_arguments],
            [*(returned[i] for i in self._phases.kept_results), *residuals],
        )
        return results

    def backward(self, *cotangents: Any) -> Any:
        """The gradients at the arguments of the last `forward`; it may be called again, with other cotangents.

        Arguments:
            cotangents: one array for every floating-point or complex result, of its shape and element type. None at all stands
                for 1, where the result is one real number.

        Returns:
            Gradients nested like the argument that `wrt` names, or a tuple of such if `wrt` is a sequence or None.

        Raises:
            NoPreviousForward: there was no `forward`.
            MissingCotangents: cotangents are left out, though the result is not one real number.
            ArgumentMismatch: their number, a shape or an element type differs.
        """
        if self._kept is None:
            raise NoPreviousForward(
                "backward was called before forward; call forward(...) with the arguments first: "
                "the gradients are those at these arguments"
            )
        arguments, values = self._kept
        inputs = self.backward_plan.inputs
        expected = inputs[len(arguments) : len(inputs) - len(values)]
        if not cotangents:
            cotangents = tuple(self._one() for _ in expected)
        if len(cotangents) != len(expected):
            raise ArgumentCountMismatch(
                f"{len(cotangents)} cotangents were given to backward; it takes one for every floating-point or complex "
                f"result: {', '.join(f'{entry.name} {entry.spec}' for entry in expected)}"
            )
        return self.backward_plan.run(*arguments, *cotangents, *values)

    def _one(self) -> np.ndarray[Any, Any]:
        """The cotangent of a result that is one real number."""
        outputs = self.plan.outputs
        if len(outputs) != 1 or outputs[0].spec.shape != () or not outputs[0].spec.dtype.is_float:
            shown = ", ".join(str(entry.spec) for entry in outputs)
            raise MissingCotangents(
                f"backward needs a cotangent for every result, because the result is not one real number: it is {shown}; "
                "give arrays of these shapes and types, or sum the result in the program"
            )
        return np.ones((), outputs[0].spec.dtype.numpy)
