"""Writing what was chosen as a program: its operations stand where their last operand is known."""

from collections.abc import Mapping

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import concatenate, reshape, transpose
from pcp.rewrite.equality.extraction import Choice
from pcp.rewrite.equality.matrices import Matrices, Place
from pcp.rewrite.equality.saturation import Graph, Node
from pcp.tensor import Tensor, building


def emitted(program: Program, matrices: Matrices, graph: Graph, choice: Choice) -> Program | None:
    """The program with its matrices computed as chosen.

    Returns:
        None where something would have to be computed before what it takes.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    operations = [view.operation for view in block.operations]
    after = _after(matrices, choice)

    def value_at(place: Place) -> Value:
        index, which = place
        found: Value = block.arguments[which] if index < 0 else operations[index].results[which]
        return found

    with context(), building(Builder(module, block)) as builder:
        made: dict[str, Tensor] = {}
        for name, node in choice.nodes.items():
            with builder.before(operations[after[name] + 1]):
                if node.op == "Leaf":
                    leaf = Tensor(value_at(matrices.terms[node.numbers[0]].leaf), builder)
                    made[name] = (
                        reshape(leaf, graph.shapes[name]) if leaf.shape != graph.shapes[name] else leaf
                    )
                else:
                    made[name] = computed(node, [made[child] for child in _operands(node, choice)])
        old = [value_at(place) for place, _ in matrices.roots]
        for value, name in zip(old, graph.roots, strict=True):
            if choice.nodes[name].op == "Leaf":
                return None
            if any(operations.index(_inside(use.owner, block)) <= after[name] for use in value.uses):
                return None
            with builder.before(operations[after[name] + 1]):
                shaped = reshape(made[name], Tensor(value, builder).shape)
            value.replace_all_uses_with(shaped.value)
        erase_dead(block)
    return Program.from_module(module)


def computed(node: Node, of: list[Tensor]) -> Tensor:
    """An operation on matrices."""
    match node.op:
        case "Dot":
            return dot_general(of[0], of[1], contract=((1,), (0,)))
        case "Add":
            return of[0] + of[1]
        case "T":
            return transpose(of[0], (1, 0))
        case "Beside":
            return concatenate(of, 1)
        case "Below":
            return concatenate(of, 0)
        case "Columns":
            return of[0][:, node.numbers[0] : node.numbers[1]]
        case _:
            return of[0][node.numbers[0] : node.numbers[1]]


def _operands(node: Node, choice: Choice) -> list[str]:
    """The classes that an operation takes: matrices that are joined one after another are joined at once."""
    if node.op not in ("Beside", "Below"):
        return list(node.children)
    found: list[str] = []
    for child in node.children:
        inner = choice.nodes[child]
        found += _operands(inner, choice) if inner.op == node.op else [child]
    return found


def _after(matrices: Matrices, choice: Choice) -> Mapping[str, int]:
    """Of each class the index of the operation behind which it can be computed."""
    found: dict[str, int] = {}
    for name, node in choice.nodes.items():
        own = [matrices.terms[node.numbers[0]].leaf[0]] if node.op == "Leaf" else []
        found[name] = max([-1, *own, *(found[child] for child in node.children)])
    return found


def _inside(op: ir.OpView | ir.Operation, block: ir.Block) -> ir.Operation:
    """The operation of a block that an operation is, or is in."""
    found = op.operation
    while found.block != block:
        assert found.parent is not None
        found = found.parent.operation
    return found
