"""Tuples, in which older exports of XLA hand several tensors on as one value, written out as the tensors that they hold."""

from collections.abc import Sequence

from pcp.ir.bindings import InvalidProgram, Value, context, ir
from pcp.ir.toolkit.attributes import integer_of
from pcp.ir.toolkit.functions import function_type
from pcp.ir.toolkit.walking import every_operation, named_operations
from pcp.ir.tree import LEAF, Tree

_MAKES = "stablehlo.tuple"
_TAKES = "stablehlo.get_tuple_element"
_DEEPEST = 64


def has_tuples(module: ir.Module, bytecode: bytes) -> bool:
    """Whether a function of a module, whose bytecode is given, takes or returns a tuple, or holds an operation that does."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    signatures = [function_type(function) for function in functions]
    types = {type_ for signature in signatures for type_ in (*signature.inputs, *signature.results)}
    if any(isinstance(type_, ir.TupleType) for type_ in types):
        return True
    named = any(name.partition(".")[2].encode() + b"\0" in bytecode for name in (_MAKES, _TAKES))
    return named and any(named_operations(module.operation, name) for name in (_MAKES, _TAKES))


def flatten_tuples(module: ir.Module) -> None:
    """Write out every tuple of a module, in place; as nesting of a program's arguments and results they stay.

    Raises:
        InvalidProgram: tuples are nested more than 64 deep, or an operation with regions takes or makes one.
    """
    with context(), ir.Location.unknown():
        for op in module.body.operations:
            if op.operation.name == "func.func":
                _flatten_signature(op.operation)
                _flatten_body(op.operation)


def _flatten_signature(function: ir.Operation) -> None:
    signature = function_type(function)
    inputs, results = list(signature.inputs), list(signature.results)
    for name, types in (("arg_attrs", inputs), ("res_attrs", results)):
        if name in function.attributes:
            entries = zip(types, ir.ArrayAttr(function.attributes[name]), strict=True)
            flattened = [entry for type_, entry in entries for _ in _leaves(type_)]
            function.attributes[name] = ir.ArrayAttr.get(flattened)
    for name, types in (("pcp.arguments", inputs), ("pcp.results", results)):
        if any(isinstance(type_, ir.TupleType) for type_ in types) and name not in function.attributes:
            trees = tuple(_tree(type_) for type_ in types)
            alone = name == "pcp.results" and len(trees) == 1
            tree = trees[0] if alone else Tree("tuple", (), trees)
            function.attributes[name] = ir.StringAttr.get(tree.to_json())
    flat = ir.FunctionType.get(_all_leaves(inputs), _all_leaves(results))
    function.attributes["function_type"] = ir.TypeAttr.get(flat)


def _flatten_body(function: ir.Operation) -> None:
    held: dict[Value, list[Value]] = {}
    for block in function.regions[0].blocks:
        old = list(block.arguments)
        for argument in old:
            leaves = _leaves(argument.type)
            new = [block.add_argument(leaf, argument.location) for leaf in leaves]
            _replace(argument, new, held)
    replaced = every_operation(
        function, lambda op: any(isinstance(v.type, ir.TupleType) for v in (*op.operands, *op.results))
    )
    for op in replaced:
        _flatten_operation(op, held)
    for op in reversed(replaced):
        op.erase()
    for block in function.regions[0].blocks:
        for _ in range(len(old)):
            block.erase_argument(0)


def _flatten_operation(op: ir.Operation, held: dict[Value, list[Value]]) -> None:
    """Replace the results of an operation by tensors; the operation itself has no uses then."""
    operands = [leaf for value in op.operands for leaf in held.get(value, [value])]
    if op.name == _MAKES:
        held[op.results[0]] = operands
    elif op.name == _TAKES:
        types = [op.operands[0].type.get_type(i) for i in range(op.operands[0].type.num_types)]
        index = integer_of(op.attributes["index"])
        start = len(_all_leaves(types[:index]))
        _replace(op.results[0], operands[start : start + len(_leaves(types[index]))], held)
    elif len(op.regions):
        raise InvalidProgram(
            f"{op.name} takes or makes a tuple, which no operation with regions can; give it the tensors themselves"
        )
    else:
        types = _all_leaves([result.type for result in op.results])
        attributes = {name: op.attributes[name] for name in op.attributes}
        with op.location, ir.InsertionPoint(op):
            tensors = list(ir.Operation.create(op.name, types, operands, attributes).results)
        for result in op.results:
            count = len(_leaves(result.type))
            _replace(result, tensors[:count], held)
            tensors = tensors[count:]


def _replace(value: Value, leaves: Sequence[Value], held: dict[Value, list[Value]]) -> None:
    if isinstance(value.type, ir.TupleType):
        held[value] = list(leaves)
    else:
        value.replace_all_uses_with(leaves[0])


def _all_leaves(types: Sequence[ir.Type]) -> list[ir.Type]:
    return [leaf for type_ in types for leaf in _leaves(type_)]


def _leaves(type_: ir.Type, depth: int = 0) -> list[ir.Type]:
    """The types that a tuple holds, those in tuples within it among them; any other type alone."""
    if not isinstance(type_, ir.TupleType):
        return [type_]
    if depth == _DEEPEST:
        raise InvalidProgram(f"tuples of the program are nested more than {_DEEPEST} deep; nest them less")
    return [leaf for i in range(type_.num_types) for leaf in _leaves(type_.get_type(i), depth + 1)]


def _tree(type_: ir.Type) -> Tree:
    if not isinstance(type_, ir.TupleType):
        return LEAF
    return Tree("tuple", (), tuple(_tree(type_.get_type(i)) for i in range(type_.num_types)))
