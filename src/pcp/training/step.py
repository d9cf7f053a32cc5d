"""The training step: forward pass, gradient and update of every parameter as one Program with donated state."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.autodiff import value_and_grad
from pcp.errors import PCPError
from pcp.ir import Program, Role, TensorSpec
from pcp.ir.tree import flatten, map_tree
from pcp.optimizers import Optimizer, clip_by_global_norm, global_norm
from pcp.rewrite.raising import raised
from pcp.tensor import Tensor
from pcp.tracing import call, spec, trace
from pcp.training.accumulation import mean_over_micro_batches, widened

Metrics = dict[str, Tensor]


class NotALoss(PCPError):
    """A program that cannot be trained: it has no parameters, or its result is no scalar loss."""


@dataclass(frozen=True)
class TrainingStep(Program):
    """A Program `(state, batch) -> (state, metrics)`.

    The state is `{"params": ..., "optimizer": ..., "step": i32}` and is donated. The batch is a tuple of the loss's arguments
    after the parameters. The metrics are scalars: `loss`, `gradient_norm` and what the optimizer reports.
    """

    optimizer: Optimizer = field(compare=False, repr=False, kw_only=True)

    def initial_state(self, parameters: Any) -> dict[str, Any]:
        """The state before the first step, from parameters that are arrays."""
        return initial_state(parameters, self.optimizer)


def initial_state(parameters: Any, optimizer: Optimizer) -> dict[str, Any]:
    """The state before the first step, from parameters that are arrays."""
    return {
        "params": parameters,
        "optimizer": optimizer.initial_state(parameters),
        "step": np.zeros((), np.int32),
    }


def training_step(
    loss: Program | Callable[..., Any],
    optimizer: Optimizer,
    *arguments: Any,
    clip_norm: float | None = None,
    accumulate: int = 1,
) -> TrainingStep:
    """One step of training as one Program.

    Arguments:
        loss: a Program, or a function to trace with `arguments`, from parameters and then anything to a scalar, or to a pair
            of a scalar and a dictionary of metrics.
        optimizer: what makes new parameters from gradients.
        arguments: only for a function: parameters (arrays or specs), then the specs of one batch.
        clip_norm: largest global norm of the gradient; None leaves it as it is.
        accumulate: how many micro-batches make one step. The loss is that of a micro-batch, and the batch that the step
            takes is that many of them, one after another along the first axis of every array. The gradient is the mean
            of theirs: for a loss that is a mean over equally many examples, that of the whole batch, to rounding.

    Returns:
        A Program `(state, batch) -> (state, metrics)`; see `TrainingStep`.

    Raises:
        InvalidAccumulation: `accumulate` is below 1.
        NotALoss: there are no parameters of a floating-point type, or the result is no scalar loss.
        InvalidOptimizer: `clip_norm` is not above 0.
    """
    # Named sites, before the derivative hides what they were; the step computes the same, bit for bit.
    program = raised(loss if isinstance(loss, Program) else trace(loss, *arguments))
    parameters, *batch = _specs(program)
    has_metrics = _has_metrics(program)
    differentiated = value_and_grad(program, wrt=0, has_aux=has_metrics)
    whole = widened(tuple(batch), accumulate)

    def evaluated(params: Any, *batch: Any) -> tuple[Any, Any]:
        value, gradients = call(differentiated, params, *batch)
        return value, gradients

    def step(state: dict[str, Any], batch: tuple[Any, ...]) -> tuple[dict[str, Any], Metrics]:
        if accumulate == 1:
            value, gradients = evaluated(state["params"], *batch)
        else:
            value, gradients = mean_over_micro_batches(evaluated, state["params"], batch, accumulate)
        loss, metrics = value if has_metrics else (value, {})
        if clip_norm is None:
            norm = global_norm(gradients)
        else:
            gradients, norm = clip_by_global_norm(gradients, clip_norm)
        params, moments, reported = optimizer.update(
            gradients, state["optimizer"], state["params"], state["step"]
        )
        new = {"params": params, "optimizer": moments, "step": state["step"] + 1}
        return new, {"loss": loss, "gradient_norm": norm, **reported, **metrics}

    # Shapes only: a broadcast zero takes no memory, however large the model.
    example = map_tree(lambda e: np.broadcast_to(np.zeros((), e.spec.dtype.numpy), e.spec.shape), parameters)
    traced = trace(step, initial_state(example, optimizer), whole, roles=(Role.state, Role.input))
    return TrainingStep(traced.bytecode, optimizer=optimizer)


def evaluation_step(loss: Program) -> Program:
    """The loss alone, from `(params, batch)`: what validation runs."""
    parameters, *batch = _specs(loss)
    return trace(
        lambda params, batch: call(loss, params, *batch),
        parameters,
        tuple(batch),
        roles=(Role.weight, Role.input),
    )


def _specs(program: Program) -> list[Any]:
    """The arguments of a loss as nested specs; the first is the parameters.

    Raises:
        NotALoss: there are no parameters, or some are not floating-point.
    """
    arguments = program.argument_tree.unflatten([entry.spec for entry in program.arguments])
    parameters: list[TensorSpec] = flatten(arguments[0])[0] if arguments else []
    if not parameters or not all(entry.dtype.is_float for entry in parameters):
        found = ", ".join(str(entry) for entry in parameters[:4]) or "none"
        raise NotALoss(
            f"the first argument of a loss must be parameters of floating-point types; found {found}"
        )
    return [map_tree(lambda entry: spec(entry.shape, entry.dtype), argument) for argument in arguments]


def _has_metrics(program: Program) -> bool:
    tree, first = program.result_tree, program.results[0].spec if program.results else None
    kinds = [child.kind for child in tree.children]
    is_pair = tree.kind == "tuple" and kinds == ["leaf", "dict"]
    if first is None or first.shape != () or not first.dtype.is_float or not (tree.kind == "leaf" or is_pair):
        raise NotALoss(
            f"a loss returns a floating-point scalar, or one and a dictionary of metrics; {program} does not"
        )
    return is_pair
