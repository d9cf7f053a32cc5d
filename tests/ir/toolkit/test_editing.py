"""Reading and changing operations in place: walks, dependences, substitution, copies, dead code."""

from pcp.ir.bindings import Value, context, ir, parse_module
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.dataflow import (
    defining_op,
    has_single_use,
    is_dead,
    is_used,
    operations_between,
    users_of,
)
from pcp.ir.toolkit.editing import clone_operations, erase_dead, substitute
from pcp.ir.toolkit.functions import (
    entry_block,
    function_type,
    functions_of,
    return_instead,
    update_function_type,
)
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.walking import every_operation, named_operations, walk_block

LOOP = """
func.func @main(%x: tensor<f32>, %n: tensor<f32>) -> tensor<f32> {
  %unread = stablehlo.negate %x : tensor<f32>
  %only_dead = stablehlo.exponential %n : tensor<f32>
  %limit = stablehlo.add %n, %n : tensor<f32>
  %0 = stablehlo.while(%i = %x) : tensor<f32> cond {
    %less = stablehlo.compare LT, %i, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  } do {
    %dead = stablehlo.multiply %i, %only_dead : tensor<f32>
    %next = "stablehlo.if"(%less2) ({
      %a = stablehlo.add %i, %n : tensor<f32>
      stablehlo.return %a : tensor<f32>
    }, {
      stablehlo.return %i : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    stablehlo.return %next : tensor<f32>
  }
  return %0 : tensor<f32>
}
""".replace(
    "%next = ",
    "%less2 = stablehlo.compare GE, %i, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>\n %next = ",
)


def loop() -> tuple[ir.Module, ir.Block]:
    """A loop that uses values from outside, and holds a branch and dead operations."""
    module = parse_module(LOOP)
    return module, entry_block(module)


def names(operations: list[ir.Operation]) -> list[str]:
    return [op.name.partition(".")[2] for op in operations]


def test_a_walk_meets_every_operation_in_order_with_those_inside_right_behind_it() -> None:
    module, block = loop()
    assert names(list(walk_block(block))) == [
        "negate", "exponential", "add", "while", "compare", "return",
        "multiply", "compare", "if", "add", "return", "return", "return", "return",
    ]  # fmt: skip
    assert sorted(names(every_operation(module.operation))) == sorted(
        [*names(list(walk_block(block))), "func", "module"]
    )
    assert [comparison_direction(op) for op in named_operations(module.operation, "stablehlo.compare")] == [
        "LT", "GE"
    ]  # fmt: skip


def test_the_values_from_outside_come_in_the_order_of_their_first_use() -> None:
    _, block = loop()
    operations = block_operations(block)
    n = block.arguments[1]
    limit, only_dead = operations[2].results[0], operations[1].results[0]
    assert values_from_outside(operations[3]) == [limit, only_dead, n]
    assert values_from_outside(operations[2]) == []


def test_who_defines_and_who_uses_a_value() -> None:
    _, block = loop()
    negate, exponential, add, while_ = block_operations(block)
    x, n = block.arguments
    assert defining_op(x) is None
    assert defining_op(add.results[0]) == add
    assert is_dead(negate)
    assert not is_dead(add)
    assert not is_used(negate.results[0])
    assert is_used(n)
    assert has_single_use(exponential.results[0])
    assert not has_single_use(add.results[0])
    assert not has_single_use(negate.results[0])
    assert names(list(users_of(add))) == ["compare", "compare"]
    assert set(operations_between([x, n], returned_by(block))) == {add, while_, exponential}


def test_dead_operations_go_with_what_only_they_used_and_effects_stay() -> None:
    _, block = loop()
    erase_dead(block)
    assert names(list(walk_block(block))) == [
        "add", "while", "compare", "return", "compare", "if", "add", "return", "return", "return", "return",
    ]  # fmt: skip


def test_other_values_are_read_inside_of_regions_too() -> None:
    _, block = loop()
    x, n = block.arguments
    while_ = block_operations(block)[3]
    substitute(while_, {n: x})
    assert n not in values_from_outside(while_)
    assert x in values_from_outside(while_)
    assert while_.operands[0] == x


def test_a_copy_of_a_function_reads_its_own_arguments() -> None:
    module, block = loop()
    with context(), ir.Location.unknown():
        target = parse_module(
            "func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
        )
        there = entry_block(target)
        *_, terminator = there.operations
        terminator.operation.erase()
        known: dict[Value, Value] = dict(zip(block.arguments, there.arguments, strict=True))
        made = clone_operations(block_operations(block), known, there, returned_by(block))
        ir.Operation.create("func.return", [], made, ip=ir.InsertionPoint(there))
    assert target.operation.verify()
    assert len(list(walk_block(there))) == len(list(walk_block(block)))
    assert module.operation.verify()


def test_a_function_returns_other_values_and_its_type_says_so() -> None:
    module, block = loop()
    *_, terminator = block.operations
    return_instead(terminator.operation, list(block.arguments))
    main = functions_of(module)["main"]
    update_function_type(main)
    assert str(function_type(main)) == "(tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)"
    assert module.operation.verify()
