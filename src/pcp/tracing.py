"""From a Python function of Tensors to a Program, by calling it once."""

import functools
import importlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from pcp.foreign import is_foreign
from pcp.ir import Argument, Builder, Program, Result, Role, TensorSpec, Tree
from pcp.ir.bindings import Value, context, ir
from pcp.ir.called_functions import copy_functions
from pcp.ir.expecting import expect_arguments, expect_function, program_of
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of, update_function_type
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import mlir_type
from pcp.ir.tree import LEAF, flatten, map_tree
from pcp.refusals import numbers_of
from pcp.specs import ArgumentSpec as ArgumentSpec
from pcp.specs import InvalidArgument as InvalidArgument
from pcp.specs import NumberSpec
from pcp.specs import OpenArgument as OpenArgument
from pcp.specs import leaf_spec as leaf_spec
from pcp.specs import spec as spec
from pcp.specs import specs_of as specs_of
from pcp.symbolic.checking import Source
from pcp.symbolic.constraints import Space
from pcp.symbolic.expressions import listed, names_in_order
from pcp.symbolic.numbers import numbers_in
from pcp.symbolic.program import SymbolicProgram
from pcp.symbolic.watching import Watches, compared, unseen
from pcp.tensor import (
    DTypeMismatch,
    NumberTensor,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    building,
    checked,
    current_builder,
    is_tracing,
    is_weak,
)

_IMPORTERS = "pcp.importers."
_BY_JAX = f"{_IMPORTERS}jax"
"""A later layer, imported for functions of JAX."""


def trace(
    function: Callable[..., Any],
    *arguments: Any,
    roles: Sequence[Role | str] | None = None,
    constraints: Sequence[str] = (),
) -> Program:
    """Call `function` once with Tensors and return the Program that it computes.

    Where a size is a symbol, it is called at a few sizes, and a `SymbolicProgram` is returned.

    Arguments:
        function: takes and returns nested containers of Tensors; anything else that it closes over is constant. A program is
            returned as it is, or, with arguments, called.
        arguments: one for each parameter, nested; leaves are arrays, whose role is `weight`, or what `pcp.spec` makes.
        roles: the role of each argument, in place of those of its leaves.
        constraints: what holds of symbolic sizes, as `"length <= 1024"`, `"length % 8 == 0"` or `"width == 4*heads"`. What the
            function compares its sizes with is added.

    Returns:
        A Program with the same nesting of arguments and results. If there are arguments that are `state` throughout, the
        function must return their successors first, one for each, and the memory of the old becomes that of the new.

    Raises:
        InvalidArgument: a leaf has no shape and element type, a result is no Tensor or array, or a state has no successor.
        ProgramExpected, WrongArguments, TracingError: it is no function, takes other arguments, or an operation in it does.
        InvalidConstraint: a text is no constraint, or too few sizes satisfy all of them.
        BuiltDifferently: the function makes another program for other sizes, in more than numbers that follow from them.
        SizeHasNoNumber: a symbolic size is used where Python or NumPy needs an integer.
    """
    function = program_of(function)
    if isinstance(function, Program | SymbolicProgram):
        if not arguments:
            return cast(Program, function)
        function = functools.partial(call, cast(Program, function))
    expect_function(function, "pcp.trace", "a function of Tensors, and its arguments")
    expect_arguments(function, "pcp.trace", arguments, roles)
    if roles is not None:
        arguments = tuple(specs_of(a, role) for a, role in zip(arguments, roles, strict=True))
    return at_sizes(
        arguments, constraints, lambda closed: _traced(function, closed, None), numbers=numbers_in(function)
    )


def at_sizes(
    arguments: tuple[Any, ...],
    constraints: Sequence[str],
    make: Callable[[tuple[Any, ...]], Program],
    mapped: Callable[[Callable[[Any], Any], Any], Any] = map_tree,
    numbers: Sequence[int] = (),
    cost: int = 1,
    unseen: str = "",
) -> Program:
    """What `make` makes of arguments; where sizes of theirs are symbols, the symbolic program of what it makes at a few sizes.

    Arguments:
        mapped: what applies a function to every leaf of the arguments.
        numbers: next to which `make` may choose otherwise.
        cost: how many times as long as tracing a function of PCP takes `make`.
        unseen: why `make` may choose by sizes in ways that are no constraints.

    Raises:
        InvalidConstraint, BuiltDifferently, SizeHasNoNumber: as `trace`; and what `make` raises, with the sizes in a note.
    """
    leaves: list[OpenArgument] = []
    mapped(lambda leaf: leaves.append(leaf) if isinstance(leaf, OpenArgument) else None, arguments)
    sizes_given = [size for leaf in leaves for size in leaf.spec.shape]
    space = Space.of((name for size in sizes_given for name in names_in_order(size)), constraints)
    if not leaves:
        return make(arguments)

    def made(sizes: dict[str, int]) -> Program:
        closed = mapped(lambda leaf: leaf.at(sizes) if isinstance(leaf, OpenArgument) else leaf, arguments)
        try:
            return make(closed)
        except Exception as error:
            error.add_note(
                f"the sizes are symbolic, and this is how it is for {listed(sizes)}; if such sizes need not be, say so: "
                "constraints=['length <= 1024'], as an example"
            )
            raise

    watches = Watches(space, sizes_given, made)

    def source() -> Source:
        near = (*sorted(watches.numbers), *numbers)
        return Source(
            watches.again,
            tuple(watches.noted),
            near,
            cost,
            unseen or watches.unseen,
            watches.hints,
            watches.mixed,
        )

    taken = {size.number for size in sizes_given if size.number is not None}
    whole = SymbolicProgram.build(space, watches.first, taken, watches.constraints, source)
    return cast(Program, whole)  # which it is by its methods: `at` leads to one


def trace_closure(function: Callable[..., Any], *arguments: Any) -> tuple[Program, list[Tensor]]:
    """As `trace`, for a function that may use Tensors of the traces around it and is called inside of them.

    Numbers among the arguments reach the function as they are, so that they adapt to the Tensors that they meet there; the
    program takes them all the same, and ignores them.

    Returns:
        A Program that takes those Tensors as further arguments, after those of the function; and the Tensors.
    """
    captured: list[Tensor] = []
    return _traced(function, arguments, captured), captured


def _traced(
    function: Callable[..., Any], arguments: tuple[Any, ...], captured: list[Tensor] | None
) -> Program:
    try:
        return _by_tensors(function, arguments, captured)
    except Exception as mistake:
        if not _is_by_jax(mistake):
            raise
        if captured:
            captured.clear()  # what JAX traces has arguments of its own alone
        imported = importlib.import_module(_BY_JAX).by_jax(function, arguments, mistake)
        return cast(Program, imported)


def _is_by_jax(mistake: BaseException) -> bool:
    """Whether an error comes out of a function of JAX, which takes no Tensors, out of a Tensor that met a value of JAX, or
    out of what stands for typed keys of JAX. What an importer refused is told already."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(mistake.__traceback__)]
    if frames[-1].startswith(_IMPORTERS):
        return False
    is_filtered = any("JAX has removed" in note for note in getattr(mistake, "__notes__", ()))
    is_key = isinstance(mistake, AttributeError | TypeError) and "'KeyData' object" in str(mistake)
    return is_filtered or is_key or any(name.startswith("jax.") for name in frames)


def _by_tensors(
    function: Callable[..., Any], arguments: tuple[Any, ...], captured: list[Tensor] | None
) -> Program:
    leaves, tree = flatten(arguments)
    specs = [leaf_spec(leaf) for leaf in leaves]
    names = leaf_names(function, tree)
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        main, block = open_main(module, [entry.spec for entry in specs])
        builder = Builder(module, block)
        if captured is not None:
            builder.capture = _Capture(builder, captured)
        with building(builder):
            inputs = [
                leaf
                if captured is not None and is_weak(leaf)
                else NumberTensor(value, builder, entry.weak)
                if isinstance(entry, NumberSpec)
                else Tensor(value, builder, entry.spec)
                for leaf, value, entry in zip(leaves, block.arguments, specs, strict=True)
            ]
            returned, result_tree = flatten(function(*tree.unflatten(inputs)))
            results = [result_tensor(value) for value in returned]
            close_main(main, block, results)
            builder.close()
        for tensor in captured or ():
            specs.append(ArgumentSpec(tensor.spec, Role.input))
            tree = Tree("tuple", (), (*tree.children, LEAF))
            names.append(f"captured.{len(names)}")
        aliases = aliases_of(specs, tree, [t.spec for t in results], result_tree)
        described = [Argument(n, e.spec, e.role, a) for n, e, a in zip(names, specs, aliases, strict=True)]
        result_names = result_tree.names()
        described_results = [Result(n, t.spec) for n, t in zip(result_names, results, strict=True)]
        describe_signature(main, described, described_results, tree, result_tree)
    return Program.from_module(module)


class _Capture:
    """Makes a Tensor of an enclosing trace a further argument of the program that is traced inside."""

    def __init__(self, builder: Builder, captured: list[Tensor]) -> None:
        self._builder = builder
        self._captured = captured
        self._arguments: dict[Value, Tensor] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        known = self._arguments.get(tensor.value)
        if known is None:
            outermost = self._builder.scopes[0]
            value = outermost.block.add_argument(tensor.value.type, ir.Location.unknown())
            known = self._arguments[tensor.value] = Tensor(value, self._builder, tensor.spec)
            known._scope = outermost
            self._captured.append(tensor)
        return known


def call(program: Program, *arguments: Any) -> Any:
    """The results of a Program inside a traced function: its operations are copied in. Outside of one it runs.

    Arguments:
        program: any Program; of a symbolic one, that at the sizes of the arguments.
        arguments: nested as its own; leaves are Tensors, arrays or numbers of its shapes and element types.

    Raises:
        TreeMismatch: the arguments are nested otherwise.
        ShapeMismatch: a leaf has another shape.
        DTypeMismatch: a leaf has another element type.
    """
    if not is_tracing():
        return program(*arguments)
    if isinstance(program, SymbolicProgram):
        sizes = program.sizes_of(*arguments)
        for entry in program.space.constraints:
            compared(entry.left.value(sizes), entry.sign, entry.right.value(sizes))
        if program.evidence.unseen:
            unseen()
        program = cast(Program, program.at(**sizes))
    leaves = program.flatten_arguments(*arguments)
    tensors = [
        as_tensor(leaf, entry.spec.dtype) for leaf, entry in zip(leaves, program.arguments, strict=True)
    ]
    for tensor, entry in zip(tensors, program.arguments, strict=True):
        if tensor.shape != entry.spec.shape:
            raise ShapeMismatch(
                f"call: argument {entry.name} has shape {tensor.shape}; the program expects {entry.spec}"
            )
        if tensor.dtype is not entry.spec.dtype:
            raise DTypeMismatch(
                f"call: argument {entry.name} has element type {tensor.dtype}; the program expects {entry.spec}"
            )
    builder = current_builder()
    module = program.module()
    inline_calls(module)
    main = main_of(module)
    copy_functions(module, main, builder.module)
    values = builder.inline(main, [t.value for t in tensors])
    return program.unflatten_results(
        [Tensor(value, builder, entry.spec) for value, entry in zip(values, program.results, strict=True)]
    )


def open_main(module: ir.Module, arguments: Sequence[TensorSpec]) -> tuple[ir.Operation, ir.Block]:
    """Add an empty public `main` to a module; its function type is completed by `close_main`."""
    types = [mlir_type(entry) for entry in arguments]
    with ir.InsertionPoint(module.body):
        attributes = {
            "sym_name": ir.StringAttr.get("main"),
            "sym_visibility": ir.StringAttr.get("public"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
        }
        main = ir.Operation.create("func.func", [], [], attributes, regions=1)
    return main, main.regions[0].blocks.append(*types)


def close_main(main: ir.Operation, block: ir.Block, results: Sequence[Tensor]) -> None:
    """Return `results` from `main`."""
    with ir.InsertionPoint(block):
        ir.Operation.create("func.return", [], [checked(t).value for t in results])
    update_function_type(main)


def aliases_of(
    arguments: Sequence[ArgumentSpec], tree: Tree, results: Sequence[TensorSpec], result_tree: Tree
) -> list[int | None]:
    """For each argument, the index of the result that takes over its memory: the successor of a state."""
    aliases: list[int | None] = [None] * len(arguments)
    children = (result_tree,) if result_tree.kind != "tuple" else result_tree.children
    start, place, successors = 0, 0, iter(children)
    for number, child in enumerate(tree.children):
        leaves = range(start, start + child.leaf_count)
        start += child.leaf_count
        if not leaves or any(arguments[i].role is not Role.state for i in leaves):
            continue
        if next(successors, None) != child:
            raise InvalidArgument(
                f"argument {number} is state, so the function must return its successor, nested like it, before other results; "
                f"it returned {result_tree}"
            )
        for i in leaves:
            if arguments[i].spec != results[place]:
                raise InvalidArgument(
                    f"a state of {arguments[i].spec} was returned as {results[place]}; its type must not change"
                )
            aliases[i] = place
            place += 1
    return aliases


def leaf_names(function: Callable[..., Any], tree: Tree) -> list[str]:
    """Dotted names of the leaves of all arguments, beginning with the names of the parameters where they are known."""
    names = [str(i) for i in range(len(tree.children))]
    try:
        for i, parameter in enumerate(inspect.signature(function).parameters.values()):
            if i < len(names) and parameter.kind in (
                parameter.POSITIONAL_ONLY,
                parameter.POSITIONAL_OR_KEYWORD,
            ):
                names[i] = parameter.name
    except (TypeError, ValueError):  # a callable without a signature: numbers do
        pass
    return [leaf for name, child in zip(names, tree.children, strict=True) for leaf in child.names(name)]


def result_tensor(value: TensorLike) -> Tensor:
    """What a traced function returned, as a Tensor.

    Raises:
        InvalidArgument: it is nothing that a tensor can be made from.
    """
    value = numbers_of(value)
    if isinstance(value, Tensor | bool | int | float | complex | np.generic) or is_foreign(value):
        return as_tensor(value)
    raise InvalidArgument(
        f"the traced function returned {type(value).__name__}; return Tensors, arrays or numbers"
    )
