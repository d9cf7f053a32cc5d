"""Programs from programs: vector-Jacobian products and gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from pcp.autodiff.engine import Reverse
from pcp.autodiff.loops.memory import LoopMemory, Loops
from pcp.autodiff.rematerialisation.checkpointing import has_blocks
from pcp.autodiff.rematerialisation.choosing import mark_boundary, rematerialise
from pcp.autodiff.rematerialisation.policy import POLICIES, Remat, policy_of
from pcp.autodiff.wrt import Wrt, chosen, chosen_leaves, every_differentiable, on_functions, pulled_back
from pcp.errors import PCPError
from pcp.ir import Argument, Builder, Program, Result, Role, TensorSpec, Tree
from pcp.ir.bindings import context, ir, run_passes
from pcp.ir.composites import COMPOSITE, composite_name, decomposition_of, open_composites
from pcp.ir.composites.records import GRADIENT
from pcp.ir.expecting import expect_function, expect_program
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block, main_of
from pcp.ir.toolkit.inlining import inline_calls, is_combined, keeps_its_derivative
from pcp.ir.toolkit.legalisation import legalise
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ir.toolkit.walking import named_operations
from pcp.ir.tree import LEAF
from pcp.ops.derivative import RULES, Cotangent, rule_name
from pcp.ops.movement import ones, zeros
from pcp.symbolic.lifting import lifted
from pcp.tensor import Tensor, building
from pcp.tracing import close_main


@dataclass(frozen=True, slots=True)
class Memory:
    """What the backward pass keeps of the forward pass: in loops, and of all other values."""

    loops: LoopMemory
    remat: Remat | None

    @staticmethod
    def of(loops: Loops, remat: Remat | None) -> "Memory":
        """What is meant. A policy that keeps everything counts as no policy: composites then stay whole.

        Raises:
            UnknownPolicy: `remat` names no policy.
        """
        keeps_all = policy_of(remat) is POLICIES["everything_saveable"]
        return Memory(LoopMemory.parse(loops), None if keeps_all else remat)


class NonScalarLoss(PCPError):
    """A gradient of something that is no single real number."""


@lifted
def vjp(
    program: Program | Callable[..., Any],
    wrt: Wrt | None = None,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Any:
    """The vector-Jacobian product of a program, or of a function, which then takes arguments and cotangents likewise.

    Arguments:
        program: any Program, or a function of Tensors.
        wrt: the arguments to differentiate for, counted at the top level: one or several. None takes every argument whose
            leaves are all floating-point or complex.
        loops, remat: as of `value_and_grad`.

    Returns:
        A Program `(arguments..., cotangents...) -> gradients`: its arguments are those of `program` and then, as one
        argument each, the cotangent of every floating-point or complex result, of that result's shape and type. The
        gradients are nested like the argument that `wrt` names, or a tuple of such if `wrt` is a sequence or None.

    Raises:
        UnknownArgument: `wrt` names no argument.
        NotDifferentiable: an argument that `wrt` names has leaves of integers or booleans.
        NoDerivative: an operation on the way has no rule.
        UnknownPolicy: `remat` names no policy.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, section 3.2.
    """
    return _pulled_back(program, chosen(wrt, argnums, None), Memory.of(loops, remat), keep=False)


@lifted
def value_and_vjp(
    program: Program | Callable[..., Any],
    wrt: Wrt | None = None,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Any:
    """The results of a program together with its vector-Jacobian product: as `vjp`, but it returns a pair.

    Returns:
        A Program `(arguments..., cotangents...) -> (results, gradients)`.

    Raises:
        UnknownArgument, NotDifferentiable, NoDerivative: as `vjp`.
    """
    return _pulled_back(program, chosen(wrt, argnums, None), Memory.of(loops, remat), keep=True)


def _pulled_back(program: Program | Callable[..., Any], wrt: Wrt | None, memory: Memory, keep: bool) -> Any:
    if isinstance(program, Program):
        return _vjp(program, wrt, memory, keep)
    expect_function(program, "pcp.vjp")
    return pulled_back(program, wrt, lambda each, wrt: _vjp(each, wrt, memory, keep))


def _vjp(program: Program, wrt: Wrt | None, memory: Memory, keep: bool) -> Program:
    """The vector-Jacobian product; `keep` says whether the results are returned before it."""
    expect_program(program, "pcp.vjp")
    if wrt is None:
        wrt = every_differentiable(program)
    leaves, tree = chosen_leaves(program, wrt)
    differentiable = [i for i, entry in enumerate(program.results) if entry.spec.dtype.is_differentiable]
    cotangents = [
        Argument(f"cotangent.{program.results[i].name}".rstrip("."), program.results[i].spec, Role.input)
        for i in differentiable
    ]

    def seeds(block: ir.Block, builder: Builder) -> list[Cotangent]:
        cotangent_of_result: list[Cotangent] = [None] * len(program.results)
        for index, entry in zip(differentiable, cotangents, strict=True):
            cotangent_of_result[index] = Tensor(
                block.add_argument(mlir_type(entry.spec), builder.location), builder, entry.spec
            )
        return cotangent_of_result

    arguments = (*program.arguments, *cotangents)
    argument_tree = Tree("tuple", (), (*program.argument_tree.children, *[LEAF] * len(cotangents)))
    if not keep:
        return _differentiated(program, leaves, seeds, _Layout(arguments, argument_tree, tree), memory)
    pair = Tree("tuple", (), (program.result_tree, tree))
    layout = _Layout(arguments, argument_tree, pair, before=range(len(program.results)))
    return _differentiated(program, leaves, seeds, layout, memory)


@overload
def value_and_grad(
    function: Program,
    wrt: Wrt = 0,
    has_aux: bool = False,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Program: ...
@overload
def value_and_grad(
    function: Callable[..., Any],
    wrt: Wrt = 0,
    has_aux: bool = False,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Callable[..., Any]: ...
@lifted
def value_and_grad(
    function: Program | Callable[..., Any],
    wrt: Wrt = 0,
    has_aux: bool = False,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Program | Callable[..., Any]:
    """The result of a scalar function together with its gradient.

    Arguments:
        function: a Program, or a function of Tensors, whose result is one real number (shape ()).
        wrt: the arguments to differentiate for, counted at the top level: one or several. `argnums`, as JAX calls it, is the
            same.
        has_aux: whether the result is a pair of that number and anything else, which is passed on.
        loops: what loops keep for the backward pass: "residuals" what is costly to recompute, "recompute" the least that the
            carries before a trip allow, "sqrt" residuals of about the square root of the number of trips at a time, a number
            that many checkpoints.
        remat: which values the backward pass keeps of the forward pass, and does not make again: `"dots_saveable"` or
            another name in `pcp.autodiff.POLICIES`, which are JAX's; or a function of operations. None keeps everything, except
            in blocks of `pcp.checkpoint`. Within a number of bytes, `pcp.plan` chooses: `memory="2GiB"`.

    Returns:
        For a Program, a Program with the same arguments; for a function, a function, so that gradients nest: with arrays,
        outside of any trace, it computes; with specs it returns a Program. The result is a pair: what `function` returns, and
        the gradient, nested like the argument that `wrt` names, or a tuple of such if `wrt` is a sequence. The gradient for
        complex z of a real result is the
        transpose of the derivative, as in JAX: the conjugate of the direction of steepest ascent.

    Raises:
        NonScalarLoss: the result is no real number.
        UnknownArgument: `wrt` names no argument.
        NotDifferentiable: an argument that `wrt` names has leaves of integers or booleans.
        NoDerivative: an operation on the way has no rule.
        UnknownPolicy: `remat` names no policy.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, section 3.2.
    """
    wrt, memory = chosen(wrt, argnums, 0), Memory.of(loops, remat)
    if isinstance(function, Program):
        return _value_and_grad(function, wrt, has_aux, memory, keep=True)
    expect_function(function, "pcp.value_and_grad")
    return on_functions(
        function, wrt, lambda program, wrt: _value_and_grad(program, wrt, has_aux, memory, keep=True)
    )


@overload
def grad(
    function: Program,
    wrt: Wrt = 0,
    has_aux: bool = False,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Program: ...
@overload
def grad(
    function: Callable[..., Any],
    wrt: Wrt = 0,
    has_aux: bool = False,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Callable[..., Any]: ...
@lifted
def grad(
    function: Program | Callable[..., Any],
    wrt: Wrt = 0,
    has_aux: bool = False,
    *,
    argnums: Wrt | None = None,
    loops: Loops = "residuals",
    remat: Remat | None = None,
) -> Program | Callable[..., Any]:
    """The gradient of a scalar function: as `value_and_grad`, without the value.

    Arguments:
        function: a Program, or a function of Tensors, whose result is one real number (shape ()).
        wrt: the arguments to differentiate for, counted at the top level: one or several. `argnums`, as JAX calls it, is the
            same.
        has_aux: whether the result is a pair of that number and anything else; then the pair `(gradient, anything)` is
            returned.
        loops, remat: as `value_and_grad`.

    Raises:
        NonScalarLoss: the result is no real number.
        UnknownArgument: `wrt` names no argument.
        NotDifferentiable: an argument that `wrt` names has leaves of integers or booleans.
        NoDerivative: an operation on the way has no rule.
        UnknownPolicy: as `value_and_grad`.
    """
    wrt, memory = chosen(wrt, argnums, 0), Memory.of(loops, remat)
    if isinstance(function, Program):
        return _value_and_grad(function, wrt, has_aux, memory, keep=False)
    expect_function(function, "pcp.grad")
    return on_functions(
        function, wrt, lambda program, wrt: _value_and_grad(program, wrt, has_aux, memory, keep=False)
    )


def _value_and_grad(program: Program, wrt: Wrt, has_aux: bool, memory: Memory, keep: bool) -> Program:
    """The gradient of the first result; `keep` says whether that result is returned as well."""
    value, aux = _loss_and_aux(program, has_aux)
    leaves, gradient = chosen_leaves(program, wrt)

    def seeds(_: ir.Block, __: Builder) -> list[Cotangent]:
        return [ones((), value.dtype), *[None] * (len(program.results) - 1)]

    everything = range(len(program.results))
    if keep:
        tree = Tree("tuple", (), (program.result_tree, gradient))
        layout = _Layout(program.arguments, program.argument_tree, tree, before=everything)
    else:
        tree = gradient if aux is None else Tree("tuple", (), (gradient, aux))
        layout = _Layout(program.arguments, program.argument_tree, tree, after=everything[1:])
    return _differentiated(program, leaves, seeds, layout, memory)


def _loss_and_aux(program: Program, has_aux: bool) -> tuple[TensorSpec, Tree | None]:
    tree, value, aux = program.result_tree, program.result_tree, None
    if has_aux:
        if tree.kind != "tuple" or len(tree.children) != 2:
            raise NonScalarLoss(f"with has_aux the result must be a pair (loss, anything); it is {tree}")
        value, aux = tree.children
    if value != LEAF:
        raise NonScalarLoss(
            f"a gradient needs a loss that is one real number; the result is {value}; return the loss alone, or use vjp"
        )
    spec = program.results[0].spec
    if spec.shape != () or not spec.dtype.is_float:
        remedy = "sum it, or use pcp.vjp" if spec.shape else "compute it from floating-point numbers"
        raise NonScalarLoss(
            f"a gradient needs a loss that is one real number; the result is {spec}; {remedy}"
        )
    return spec, aux


@dataclass(frozen=True, slots=True)
class _Layout:
    """What a differentiated program takes and returns: gradients, with results of the forward pass `before` and `after`."""

    arguments: Sequence[Argument]
    argument_tree: Tree
    result_tree: Tree
    before: Sequence[int] = ()
    after: Sequence[int] = ()


def _differentiated(
    program: Program,
    leaves: Sequence[int],
    seeds: Callable[[ir.Block, Builder], Sequence[Cotangent]],
    layout: _Layout,
    memory: Memory,
) -> Program:
    module = program.module()
    inline_calls(module)
    main = main_of(module)
    # A gradient shares operations with what it is the gradient of: in the gradient of one, none is hidden in a composite.
    keeps_composites = not _has_gradients(main)
    open_composites(
        module,
        lambda op: keeps_its_derivative(op) or (keeps_composites and not is_combined(op) and _has_rule(op)),
    )
    legalise(module)
    with context(), ir.Location.unknown():
        rematerialises = _append_backward_pass(module, leaves, seeds, layout, memory)
    # Rules make some values twice and some that nothing uses; a pass leaves loops that call or draw.
    erase_dead(entry_block(module))
    run_passes(module, "builtin.module(cse)")
    if rematerialises:
        with context(), ir.Location.unknown():
            rematerialise(module, memory.remat)
        erase_dead(entry_block(module))  # composites that were made again for their gradients alone
    return Program.from_module(module)


def _has_gradients(main: ir.Operation) -> bool:
    """Whether a program has gradients of composites already."""
    return any(GRADIENT in composite_name(op) for op in named_operations(main, COMPOSITE))


def _has_rule(op: ir.Operation) -> bool:
    """Whether a composite is differentiated as a whole; not if its function holds calls, or composites without a derivative."""
    if rule_name(op) not in RULES:
        return False
    function = decomposition_of(op)
    return not named_operations(function, "func.call") and all(
        map(keeps_its_derivative, named_operations(function, COMPOSITE))
    )


def _append_backward_pass(
    module: ir.Module,
    leaves: Sequence[int],
    seeds: Callable[[ir.Block, Builder], Sequence[Cotangent]],
    layout: _Layout,
    memory: Memory,
) -> bool:
    """Differentiate in place; whether values are to be made again, so that the beginning of the backward pass is marked."""
    main = main_of(module)
    block = main.regions[0].blocks[0]
    *operations, terminator = (op.operation for op in block.operations)
    wanted = [block.arguments[i] for i in leaves]
    builder = Builder(module, block)
    builder.pinned = ir.Location.unknown()  # equal programs have equal gradients, wherever they are asked for
    rematerialises = memory.remat is not None or has_blocks(operations)
    with building(builder), builder.before(terminator):
        if rematerialises:
            mark_boundary(builder)
        cotangents = Reverse(builder, memory.loops).gradients(
            operations, list(terminator.operands), seeds(block, builder), wanted
        )
        outputs = list(terminator.operands)  # a rule may have put others in their place
        gradients = [
            zeros(spec.shape, spec.dtype) if g is None else g
            for g, spec in zip(cotangents, (spec_of(value.type) for value in wanted), strict=True)
        ]
        results = [
            *(Tensor(outputs[i], builder) for i in layout.before),
            *gradients,
            *(Tensor(outputs[i], builder) for i in layout.after),
        ]
        terminator.erase()
        close_main(main, block, results)
    named = [Result(name, t.spec) for name, t in zip(layout.result_tree.names(), results, strict=True)]
    # The results are others than before, so no argument shares its memory with one.
    arguments = [replace(entry, alias=None) for entry in layout.arguments]
    describe_signature(main, arguments, named, layout.argument_tree, layout.result_tree)
    return rematerialises
