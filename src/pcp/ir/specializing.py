"""Which function of a module is its program, and of what shapes: choices that a file from elsewhere may leave open."""

from collections.abc import Sequence
from typing import Any

from pcp.ir.bindings import InvalidProgram, context, ir, refine_dynamic, run_passes
from pcp.ir.toolkit.attributes import string_of, symbol_name
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.functions import function_type, functions_of, main_of
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import named_operations
from pcp.ir.types import checked_shape

_REFINE = "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism),stablehlo-refine-shapes,canonicalize,symbol-dce"


class UnknownShape(InvalidProgram):
    """A program with sizes that are known only at run time, and no or no fitting shapes to give them."""


class NoSuchFunction(InvalidProgram):
    """A `main` that names no function of the module."""


def choose_main(module: ir.Module, name: str) -> None:
    """Make a function the program of a module, in place; what it does not call is dropped.

    Raises:
        NoSuchFunction: there is none of that name; the message lists those that there are.
    """
    functions = functions_of(module)
    if name not in functions:
        raise NoSuchFunction(
            f"the module has no function called {name!r}; it has: {', '.join(functions) or 'none'}"
        )
    with context():
        if name != "main" and "main" in functions:
            _rename(module, functions["main"], "main", _free_name(functions))
        _rename(module, functions[name], name, "main")
        for function in functions.values():
            public = symbol_name(function) == "main"
            function.attributes["sym_visibility"] = ir.StringAttr.get("public" if public else "private")
    functions.clear()
    run_passes(module, "builtin.module(symbol-dce)")


def refine(module: ir.Module, shapes: Sequence[Any] | None) -> None:
    """Give every size that is left open a value, in place.

    Arguments:
        module: with a `main`.
        shapes: for each argument its shape, or anything that has one, or None where nothing is open; None for all.

    Raises:
        UnknownShape: a size is open and no shape is given, or a shape does not fit.
        InvalidProgram: the program says itself that it is not for these shapes.
    """
    main = main_of(module)
    types = list(function_type(main).inputs)
    _refuse_platforms(main)
    sizes = [None] * len(types) if shapes is None else list(shapes)
    if len(sizes) != len(types):
        raise UnknownShape(f"{len(sizes)} shapes were given; the program takes {len(types)} arguments")
    if shapes is None and all(_is_static(type_) for type_ in types):
        return
    with context(), ir.Location.unknown():
        wanted = [
            _refined(i, type_, shape) for i, (type_, shape) in enumerate(zip(types, sizes, strict=True))
        ]
        if symbol_name(main) != "main":
            main.attributes["sym_name"] = ir.StringAttr.get("main")
    del main
    inline_calls(module)  # the pass refuses a function that is called with two sizes
    arguments = f"stablehlo-refine-arguments{{types={','.join(wanted)}}}"
    try:
        run_passes(module, f"builtin.module({arguments},{_REFINE})")
    except ir.MLIRError as error:
        raise UnknownShape(f"the shapes {sizes} do not fit together: {error}") from None
    _check_assertions(module)
    if any(_target(op).startswith("stablehlo.dynamic_") for op in _calls(module)):
        refine_dynamic(module)
    open_ = [type_ for type_ in function_type(main_of(module)).results if not _is_static(type_)]
    if open_:
        raise UnknownShape(
            f"the program returns {open_[0]} for the shapes {sizes}; expected sizes that follow from those of the arguments: "
            "export it with shapes that are numbers"
        )


def _calls(module: ir.Module) -> list[ir.Operation]:
    return list(named_operations(module.operation, "stablehlo.custom_call"))


def _target(op: ir.Operation) -> str:
    return string_of(op.attributes["call_target_name"])


def _refined(index: int, type_: ir.Type, open_shape: Any) -> str:
    if not isinstance(type_, ir.RankedTensorType):
        raise InvalidProgram(f"argument {index} is {type_}, which is not a tensor of known rank")
    sizes = [None if type_.is_dynamic_dim(axis) else type_.get_dim_size(axis) for axis in range(type_.rank)]
    if open_shape is None:
        if None in sizes:
            raise UnknownShape(
                f"argument {index} is {type_}, whose sizes are not known; give a shape for each argument: "
                f"pcp.load(path, shapes=[...]), with None for an argument whose shape is known"
            )
        return str(type_)
    shape = checked_shape(
        getattr(open_shape, "shape", getattr(getattr(open_shape, "spec", None), "shape", open_shape))
    )
    if len(shape) != len(sizes) or any(s not in (None, g) for s, g in zip(sizes, shape, strict=True)):
        raise UnknownShape(f"argument {index} is {type_}; the shape {shape} does not fit")
    return str(ir.RankedTensorType.get(shape, type_.element_type))


def _check_assertions(module: ir.Module) -> None:
    """Remove what jax.export asserts of shapes, if it holds."""
    assertions = [op for op in _calls(module) if _target(op) == "shape_assertion"]
    while assertions:
        op = assertions.pop()
        condition = defining_op(op.operands[0])
        holds = (
            condition is not None
            and condition.name == "stablehlo.constant"
            and "true" in str(condition.attributes["value"])
        )
        if not holds:
            raise UnknownShape(string_of(op.attributes["error_message"]))
        op.erase()


def _refuse_platforms(main: ir.Operation) -> None:
    if "arg_attrs" in main.attributes and "_platform_index" in str(main.attributes["arg_attrs"]):
        raise InvalidProgram(
            "the program was exported for several platforms; export it for one: jax.export.export(f, platforms=['cpu'])"
        )


def _is_static(type_: ir.Type) -> bool:
    return isinstance(type_, ir.RankedTensorType) and type_.has_static_shape


def _free_name(functions: dict[str, Any]) -> str:
    return next(name for i in range(len(functions) + 1) if (name := f"main_{i}") not in functions)


def _rename(module: ir.Module, function: ir.Operation, old: str, new: str) -> None:
    if old == new:
        return
    function.attributes["sym_name"] = ir.StringAttr.get(new)
    for call in named_operations(module.operation, "func.call"):
        if ir.FlatSymbolRefAttr(call.attributes["callee"]).value == old:
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(new)
