"""The training step: forward pass, gradient and update of every parameter as one Program with donated state."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from pcp.autodiff import Remat, value_and_grad
from pcp.autodiff.structural_zeros import structural_zeros
from pcp.ir import PARAMETERS, Program, Role, TensorSpec
from pcp.ir.beginnings import Beginning
from pcp.ir.custom_derivatives import without_custom_derivatives
from pcp.ir.expecting import HoldsProgram, expect_function
from pcp.ir.tree import flatten, map_tree
from pcp.nn.modules.module import has_buffers, merge, split
from pcp.ops.movement import stop_gradient
from pcp.optimizers import Optimizer, clip_by_global_norm, global_norm, kept_by
from pcp.optimizers.base import expect_optimizer
from pcp.optimizers.sparing import sparing
from pcp.planning.paths.preparation import without_unknown_composites
from pcp.rewrite.canonical import canonical
from pcp.rewrite.softmax_shifts import with_constant_shifts
from pcp.rewrite.vanishing import without_vanishing_sums
from pcp.symbolic.lifting import lifted
from pcp.tensor import Tensor
from pcp.tracing import call, spec, specs_of, trace
from pcp.training.accumulation import mean_over_micro_batches, widened
from pcp.training.carried_buffers import loss_with_buffers
from pcp.training.drawn_numbers import NotALoss as NotALoss
from pcp.training.drawn_numbers import expect_key, key_of

Metrics = dict[str, Tensor]
_Fact = TypeVar("_Fact")


@dataclass(frozen=True)
class TrainingStep(Program):
    """A Program `(state, batch) -> (state, metrics)`.

    The state is `{"params": ..., "optimizer": ..., "step": i32}`, with `"buffers"` if the loss has some, and is donated. The
    batch is a tuple of the loss's arguments after these. The metrics are scalars: `loss`, `gradient_norm` and what the
    optimizer reports.
    """

    optimizer: Optimizer = field(compare=False, repr=False, kw_only=True)

    def initial_state(self, parameters: Any, buffers: Any = None) -> dict[str, Any]:
        """The state before the first step, from parameters, and buffers if the loss has some, that are arrays. A module with
        buffers is both, and so is what `pcp.from_torch` makes.

        Arrays on a device are copied: the first step takes the memory of its state, and those that were given stay.
        """
        return initial_state(parameters, self.optimizer, buffers)


def initial_state(parameters: Any, optimizer: Optimizer, buffers: Any = None) -> dict[str, Any]:
    """The state before the first step, from parameters and buffers that are arrays, or from what has both."""
    if isinstance(parameters, HoldsProgram):
        parameters, buffers = parameters.weights, parameters.buffers or None
    if buffers is None and has_buffers(parameters):
        parameters, buffers = split(parameters)
    return {
        **({} if buffers is None else {"buffers": map_tree(_own, buffers)}),
        "params": map_tree(_own, parameters),
        "optimizer": optimizer.initial_state(parameters),
        "step": np.zeros((), np.int32),
    }


def _own(array: Any) -> Any:
    """An array whose memory a step may take: a copy of one on a device. Of any other, placing it there makes a copy anyway."""
    is_deleted = getattr(array, "is_deleted", None)
    return array if is_deleted is None or is_deleted() else array.copy()


@lifted
def training_step(
    loss: Program | Callable[..., Any],
    optimizer: Optimizer,
    *arguments: Any,
    clip_norm: float | None = None,
    accumulate: int = 1,
    remat: Remat | None = None,
    bound: bool = False,
    seed: int | None = None,
) -> TrainingStep:
    """One step of training as one Program.

    Arguments:
        loss: a Program, or a function to trace with `arguments`, from parameters and then anything to a scalar, or to a pair
            of a scalar and a dictionary of metrics. The second argument may be buffers, which the state carries: if it is
            `state`, the loss returns its successor before the scalar; if it is `weight` and all that follows `input`, it
            stays as it is.
        optimizer: what makes new parameters from gradients. A parameter that no gradient reaches, because the loss does not
            read it or only behind `pcp.stop_gradient`, stays as it is: it does not decay, and has no moments (None in the
            state); so does one that `pcp.optimizers.groups` freezes. One whose gradient is 0 because of values, as in a
            branch that is not taken, decays.
        arguments: only for a function: parameters (arrays or specs), then the specs of one batch.
        clip_norm: largest global norm of the gradient; None leaves it as it is.
        accumulate: how many micro-batches make one step. The loss is that of a micro-batch, and the batch that the step
            takes is that many of them, one after another along the first axis of every array. The gradient is the mean
            of theirs: for a loss that is a mean over equally many examples, that of the whole batch, to rounding.
        remat: what the backward pass makes again instead of keeping it: see `pcp.value_and_grad`.
        bound: whether buffers that stay as they are, are the first argument of the step, of role `weight`, to be bound once
            (`plan.bind(buffers)`), and no part of the state.
        seed: of the random numbers that the loss draws. Its last argument is then a key, u32[2], which is no part of the batch:
            every micro-batch has its own, made of the seed, the number of the step and the integers of the micro-batch.

    Returns:
        A Program `(state, batch) -> (state, metrics)`; see `TrainingStep`. With `bound`, and a loss that has such buffers,
        `(buffers, state, batch) -> (state, metrics)`.

    Raises:
        InvalidAccumulation: `accumulate` is below 1.
        NotALoss: there are no parameters of a floating-point type, or the result is no scalar loss; or there is a seed, and the
            last argument is no key.
        ProgramExpected: the loss is neither a Program nor a function of Tensors.
        InvalidOptimizer: the optimizer is none, one of its groups has no parameter, or `clip_norm` is not above 0.
        UnknownPolicy: as `pcp.value_and_grad`.
    """
    if not isinstance(loss, Program):
        expect_function(loss, "pcp.training_step")
    expect_optimizer(optimizer)
    program = loss if isinstance(loss, Program) else _traced(loss, arguments)
    with_buffers = loss_with_buffers(_without_gradients(program, optimizer))
    # Named sites, before the derivative hides what they were; the step computes the same, bit for bit.
    program = canonical(with_constant_shifts(without_unknown_composites(with_buffers.program)))
    parameters, *batch = _specs(program)
    buffers = batch.pop(0) if with_buffers.has_buffers else None
    has_metrics = _has_metrics(program, with_buffers.changes)
    if seed is not None:
        expect_key(batch)
        batch.pop()
    differentiated = without_custom_derivatives(
        value_and_grad(program, wrt=0, has_aux=has_metrics, remat=remat)
    )
    optimizer = sparing(optimizer, _frozen(differentiated, len(program.results)))
    differentiated = without_vanishing_sums(differentiated, len(program.results))
    # Shapes only: a broadcast zero takes no memory, however large the model.
    example, held = map_tree(
        lambda e: np.broadcast_to(np.zeros((), e.spec.dtype.numpy), e.spec.shape), (parameters, buffers)
    )
    apart = bound and with_buffers.has_buffers and not with_buffers.changes
    initial = initial_state(example, optimizer, None if apart else held)
    whole = widened(tuple(batch), accumulate)

    def evaluated(count: Tensor, held: tuple[Any, ...], params: Any, *batch: Any) -> tuple[Any, Any, Any]:
        """The loss and its metrics, the gradients, and the buffers after it."""
        drawn = () if seed is None else (key_of(seed, count, batch),)
        value, gradients = call(differentiated, params, *held, *batch, *drawn)
        if not with_buffers.changes:
            return value, gradients, held
        return (value[0], value[1]["metrics"]), gradients, (value[1]["buffers"],)

    def step(state: dict[str, Any], batch: tuple[Any, ...], *buffers: Any) -> tuple[dict[str, Any], Metrics]:
        held = (*buffers, state["buffers"]) if "buffers" in state else buffers
        of_part = functools.partial(evaluated, state["step"])
        if accumulate == 1:
            value, gradients, held = of_part(held, state["params"], *batch)
        else:
            changing = held if with_buffers.changes else None
            value, gradients, held = mean_over_micro_batches(
                of_part, held, changing, state["params"], batch, accumulate
            )
        loss, metrics = value if has_metrics else (value, {})
        carried = {"buffers": held[-1]} if "buffers" in state else {}
        if clip_norm is None:
            norm = global_norm(gradients)
        else:
            gradients, norm = clip_by_global_norm(gradients, clip_norm)
        params, moments, reported = optimizer.update(
            gradients, state["optimizer"], state["params"], state["step"]
        )
        new = {**carried, "params": params, "optimizer": moments, "step": state["step"] + 1}
        return new, {"loss": loss, "gradient_norm": norm, **reported, **metrics}

    def bound_step(buffers: Any, state: dict[str, Any], batch: tuple[Any, ...]) -> Any:
        return step(state, batch, buffers)

    if apart:
        traced = trace(bound_step, held, initial, whole, roles=(Role.weight, Role.state, Role.input))
    else:
        traced = trace(step, initial, whole, roles=(Role.state, Role.input))
    described = traced.describing_state(
        _by_argument(initial, {f"optimizer.{entry}": kept for entry, kept in kept_by(optimizer).items()}),
        _by_argument(initial, {group: group for group in _groups(initial, kept_by(optimizer))}),
    )
    begins = (
        _begins(loss, with_buffers.has_buffers, initial, held if apart else None, whole)
        if isinstance(loss, Program)
        else {}
    )
    return TrainingStep(described.bytecode, optimizer=optimizer, begins=begins)


def _begins(
    loss: Program, has_buffers: bool, initial: dict[str, Any], apart: Any, batch: Any
) -> dict[str, Beginning]:
    """What a step is known to begin with: parameters, buffers and a batch as the loss says, moments as the optimizer does.

    Arguments:
        initial: a state whose parameters are zeros.
        apart: nested like the buffers, where they are no part of it.
        batch: nested specs.
    """
    names = [entry.name for entry in loss.arguments]
    begins: dict[str, Beginning] = {}
    for place, part in enumerate(("params", "buffers")[: 1 + has_buffers]):
        own = loss.argument_tree.children[place].leaf_count
        nested = {"state": {part: initial[part]}} if part in initial else {part: apart}
        state = flatten(nested)[1].names()
        begins |= {
            new: loss.begins[old] for new, old in zip(state, names, strict=False) if old in loss.begins
        }
        names = names[own:]
    own_names = flatten({"batch": batch})[1].names()
    begins |= {
        new: loss.begins[old] for new, old in zip(own_names, names, strict=False) if old in loss.begins
    }
    leaves, tree = flatten({"state": {"optimizer": initial["optimizer"]}})
    moments = zip(tree.names(), map(np.asarray, leaves), strict=True)
    return begins | {name: Beginning.like(each) for name, each in moments if each.size and each.any()}


def _frozen(differentiated: Program, results: int) -> frozenset[str]:
    """The parameters, by name, that no gradient reaches, from a loss with its gradient.

    Raises:
        NotALoss: none is reached.
    """
    zeros, tree = structural_zeros(differentiated), differentiated.argument_tree.children[0]
    names = tree.names()
    frozen = frozenset(name for index, name in enumerate(names, results) if index in zeros)
    if len(frozen) == len(names):
        raise NotALoss(
            f"no gradient reaches any parameter ({tree}): the loss does not depend on them, or only behind "
            "pcp.stop_gradient or integers; expected a loss that depends on one at least"
        )
    return frozen


def _traced(loss: Callable[..., Any], arguments: tuple[Any, ...]) -> Program:
    """The loss of parameters and a batch; or of parameters, buffers and a batch, where modules have buffers."""
    if not arguments or not has_buffers(arguments[0]):
        return trace(loss, *arguments)

    def changing(parameters: Any, buffers: Any, *batch: Any) -> tuple[Any, Any]:
        model = merge(parameters, buffers)
        result = loss(model, *batch)
        return split(model)[1], result

    parameters, buffers = split(arguments[0])
    return trace(changing, parameters, specs_of(buffers, Role.state), *arguments[1:])


def _without_gradients(program: Program, optimizer: Optimizer) -> Program:
    """The loss, by which no gradient reaches the parameters that the optimizer does not want to move."""
    freezes: Callable[[Any], frozenset[str]] | None = getattr(optimizer, "freezes", None)
    specs = program.argument_tree.unflatten(
        [spec(e.spec.shape, e.spec.dtype, e.role) for e in program.arguments]
    )
    frozen = freezes(map_tree(lambda entry: entry.spec, specs[0])) if freezes is not None and specs else None
    if not frozen:
        return program

    def stopped(params: Any, *others: Any) -> Any:
        leaves, tree = flatten(params)
        pairs = zip(tree.names(), leaves, strict=True)
        return call(
            program,
            tree.unflatten(stop_gradient(leaf) if name in frozen else leaf for name, leaf in pairs),
            *others,
        )

    return trace(stopped, *specs)


def _groups(state: dict[str, Any], kept: Iterable[str]) -> list[str]:
    """The parts of a state in which gradients or updates of all parameters stand."""
    moments = state["optimizer"] if isinstance(state["optimizer"], dict) else {}
    inside = {entry.partition(".")[0] for entry in kept if "." in entry}
    parts = [entry for entry in moments if entry not in inside]
    return [PARAMETERS, *(f"optimizer.{entry}" for entry in (*parts, *kept))]


def _by_argument(state: dict[str, Any], parts: Mapping[str, _Fact]) -> dict[str, _Fact]:
    """What is known of parts of the state, for every argument in them by name."""
    _, tree = flatten({"state": state})
    return {
        name: fact
        for name in tree.names()
        for part, fact in parts.items()
        if name == f"state.{part}" or name.startswith(f"state.{part}.")
    }


def evaluation_step(loss: Program) -> Program:
    """The loss alone, from `(params, batch)`, or `(buffers, params, batch)` if it has buffers: what validation runs."""
    parameters, *batch = _specs(loss)
    with_buffers = loss_with_buffers(loss)
    if with_buffers.has_buffers:
        buffers = batch.pop(0)

        def alone(buffers: Any, params: Any, batch: tuple[Any, ...]) -> Any:
            result = call(loss, params, buffers, *batch)
            return result[1] if with_buffers.changes else result

        return trace(
            alone,
            buffers,
            parameters,
            tuple(batch),
            roles=(Role.weight, Role.weight, Role.input),
        )
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
        specs = ", ".join(str(entry) for entry in parameters[:4]) or "none"
        raise NotALoss(
            f"the first argument of a loss must be parameters of floating-point types; found {specs}"
        )
    return [map_tree(lambda entry: spec(entry.shape, entry.dtype), argument) for argument in arguments]


def _has_metrics(program: Program, changes_buffers: bool) -> bool:
    """Whether a loss returns metrics, too.

    Raises:
        NotALoss: it returns no scalar loss, or beside it what are no metrics.
    """
    tree, first = program.result_tree, program.results[0].spec if program.results else None
    is_pair = tree.kind == "tuple" and len(tree.children) == 2 and tree.children[0].kind == "leaf"
    if first is None or first.shape != () or not first.dtype.is_float or not (tree.kind == "leaf" or is_pair):
        named = tree.kind == "dict" and "loss" in tree.keys
        raise NotALoss(
            f"a loss returns a floating-point scalar, or one and a dictionary of metrics; {program} does not"
            + "; take the loss alone: pcp.from_torch(..., output='loss')" * named
        )
    if is_pair:
        _expect_metrics(program, changes_buffers)
    return is_pair


def _expect_metrics(program: Program, changes_buffers: bool) -> None:
    """Refuse what is returned beside a loss unless it is scalars by name: state, which it may be, would be lost."""
    beside = program.result_tree.children[1]
    results = list(program.results[1:])
    if changes_buffers:
        metrics = beside.children[beside.keys.index("metrics")]
        results, beside = results[len(results) - metrics.leaf_count :], metrics
    flat = beside.kind == "dict" and all(child.kind == "leaf" for child in beside.children)
    stray = next((entry for entry in results if entry.spec.shape != ()), None)
    specs, start, argument = [entry.spec for entry in results], 0, None
    for place, child in enumerate(program.argument_tree.children):
        own = [entry.spec for entry in program.arguments[start : start + child.leaf_count]]
        start += child.leaf_count
        if place and own and child == beside and own == specs:
            argument = place
    if flat and stray is None and argument is None:
        return
    described = (
        f"nested as its argument {argument} and of the same shapes"
        if argument is not None
        else f"the array {stray.name} of {stray.spec}"
        if stray is not None
        else f"{beside}, no dictionary of scalars"
    )
    raise NotALoss(
        f"a loss returns a floating-point scalar, or one and a dictionary of metrics; beside the loss stands {described}; "
        "expected metrics, scalars by name that no argument has. If it is state, such as "
        "running means, let the state be the second argument and its successor the first result: (state, loss) from "
        "(parameters, state, ...), with roles=('weight', 'state', 'input', ...), and the step carries it"
    )
