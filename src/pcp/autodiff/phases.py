"""One differentiated program as two: a forward pass that also returns residuals, and a backward pass that takes them.

What depends on a cotangent is backward; all else is forward, so that a factor such as 1 - y^2, which only needs y, is computed
once. Residuals are the forward values that the backward pass reads. A value that is cheap to make again (a constant, a
broadcast, a reshape) is made again instead, from what it is made of, where that takes no more memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pcp.autodiff.gradient import value_and_vjp
from pcp.autodiff.wrt import Wrt
from pcp.ir import Argument, Program, Result, Role, Tree
from pcp.ir.bindings import Value, context, ir
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block, main_of, return_instead, update_function_type
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import LEAF
from pcp.ops.record import RECORDS, Cost, Kind


@dataclass(frozen=True, slots=True)
class Phases:
    """A program and its vector-Jacobian product, as two programs.

    Arguments:
        forward: `(arguments...) -> (results, residuals)`.
        backward: `(kept arguments..., cotangents..., kept results..., residuals...) -> gradients`; every argument is one
            array, the gradients are nested as those of `vjp`.
        kept_arguments: which arguments, counted as flat arrays, the backward pass reads.
        kept_results: which results it reads.
    """

    forward: Program
    backward: Program
    kept_arguments: tuple[int, ...]
    kept_results: tuple[int, ...]


def two_phases(program: Program, wrt: Wrt | None = None) -> Phases:
    """Split a program and its vector-Jacobian product at what the cotangents reach.

    Arguments:
        program: any Program.
        wrt: as for `vjp`.

    Raises:
        UnknownArgument, NotDifferentiable, NoDerivative: as `vjp`.
    """
    joint = value_and_vjp(program, wrt)
    cut = _cut(joint, len(program.arguments), len(program.results))
    return Phases(_forward(joint, program, cut), _backward(joint, cut), cut.arguments, cut.results)


_Place = tuple[int, int]
"""A value by numbers that hold in every copy of a module: operation in `main` (-1 for its arguments), result."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where a joint program is cut: flat arguments and results before it, and the places of the residuals."""

    argument_count: int
    result_count: int
    backward: frozenset[int]
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    residuals: tuple[_Place, ...]


def _cut(joint: Program, argument_count: int, result_count: int) -> _Cut:
    module = joint.module()
    block = entry_block(module)
    *operations, terminator = (op.operation for op in block.operations)
    place: dict[Value, _Place] = {value: (-1, i) for i, value in enumerate(block.arguments)}
    reached: set[Value] = set(list(block.arguments)[argument_count:])
    backward: set[int] = set()
    reads: list[list[Value]] = []
    for number, op in enumerate(operations):
        place.update((value, (number, i)) for i, value in enumerate(op.results))
        reads.append([*op.operands, *(values_from_outside(op) if len(op.regions) else ())])
        if any(value in reached for value in reads[-1]):
            backward.add(number)
            reached.update(op.results)
    returned = list(terminator.operands)
    results = {place[value]: i for i, value in reversed(list(enumerate(returned[:result_count])))}
    needed: dict[_Place, None] = {}
    pending = [value for number in sorted(backward) for value in reads[number]] + returned[result_count:]
    seen = set(pending)
    while pending:
        value = pending.pop(0)
        where = place[value]
        number = where[0]
        if number in backward or value in reached:
            continue
        if number >= 0 and where not in results and _is_cheap(operations[number]):
            more = [operand for operand in reads[number] if operand not in seen]
            seen.update(more)
            pending += more
        else:
            needed[where] = None
    kept = [where for where in needed if where[0] >= 0]
    return _Cut(
        argument_count,
        result_count,
        frozenset(backward),
        tuple(sorted(index for number, index in needed if number < 0)),
        tuple(sorted(results[where] for where in kept if where in results)),
        tuple(sorted(where for where in kept if where not in results)),
    )


def _is_cheap(op: ir.Operation) -> bool:
    """Whether the backward pass makes a result again: it is moved only, from no more bytes than it has."""
    record = RECORDS.get(op.name)
    if record is None or record.cost not in (Cost.free, Cost.move) or record.kind is Kind.structure:
        return False
    return sum(spec_of(value.type).bytes for value in op.operands) <= spec_of(op.results[0].type).bytes


def _forward(joint: Program, program: Program, cut: _Cut) -> Program:
    module = joint.module()
    main = main_of(module)
    block = main.regions[0].blocks[0]
    *operations, terminator = (op.operation for op in block.operations)
    returned = list(terminator.operands)[: cut.result_count]
    returned += [operations[number].results[index] for number, index in cut.residuals]
    specs = [spec_of(value.type) for value in returned]
    return_instead(terminator, returned)
    for number in sorted(cut.backward, reverse=True):
        operations[number].erase()
    del operations, terminator, returned
    for index in reversed(range(cut.argument_count, len(block.arguments))):
        block.erase_argument(index)
    erase_dead(block)
    names = [f"residual.{i}" for i in range(len(cut.residuals))]
    results = [
        *program.results,
        *(Result(n, s) for n, s in zip(names, specs[cut.result_count :], strict=True)),
    ]
    residual_tree = Tree("tuple", (), (LEAF,) * len(names))
    tree = Tree("tuple", (), (program.result_tree, residual_tree))
    arguments = [replace(entry, alias=None) for entry in program.arguments]
    return _finished(module, main, arguments, results, (program.argument_tree, tree))


def _backward(joint: Program, cut: _Cut) -> Program:
    module = joint.module()
    main = main_of(module)
    block = main.regions[0].blocks[0]
    *operations, terminator = (op.operation for op in block.operations)
    returned = list(terminator.operands)
    kept = [returned[i] for i in cut.results]
    kept += [operations[number].results[index] for number, index in cut.residuals]
    names = [joint.results[i].name for i in cut.results]
    names += [f"residual.{i}" for i in range(len(cut.residuals))]
    arguments = [joint.arguments[i] for i in cut.arguments]
    arguments += joint.arguments[cut.argument_count :]
    with context():
        for value, name in zip(kept, names, strict=True):
            spec = spec_of(value.type)
            value.replace_all_uses_with(block.add_argument(value.type, ir.Location.unknown()))
            arguments.append(Argument(name, spec, Role.input))
    gradients = list(terminator.operands)[cut.result_count :]
    return_instead(terminator, gradients)
    del operations, terminator, returned, kept, gradients
    erase_dead(block)
    for index in reversed([i for i in range(cut.argument_count) if i not in cut.arguments]):
        block.erase_argument(index)
    flat = Tree("tuple", (), (LEAF,) * len(arguments))
    tree = joint.result_tree.children[1]
    results = [
        Result(n, e.spec) for n, e in zip(tree.names(), joint.results[cut.result_count :], strict=True)
    ]
    return _finished(module, main, arguments, results, (flat, tree))


def _finished(
    module: ir.Module,
    main: ir.Operation,
    arguments: Sequence[Argument],
    results: Sequence[Result],
    trees: tuple[Tree, Tree],
) -> Program:
    update_function_type(main)
    describe_signature(main, arguments, results, *trees)
    return Program.from_module(module)
