"""A Program as a function of JAX, whose operations stand inside of whatever `jax.jit` compiles around them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from pcp.autodiff.gradient import vjp
from pcp.backends.target import expect_devices
from pcp.importers.jax_trees import check_precision, is_number, jax_arrays
from pcp.ir import Program, Tree
from pcp.ir.bindings import bytecode_of, inline_function, ir
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.tree import LEAF
from pcp.planning.arguments import check
from pcp.symbolic.program import SymbolicProgram

Array = Any


def to_jax(program: Program) -> Callable[..., Any]:
    """A function of JAX that computes what a Program does: for use inside `jax.jit`, `jax.grad` and `jax.vmap`.

    Its operations are copied into the module that JAX compiles; nothing calls back. The reverse derivative is that of PCP, to
    any order; its forward pass is the same operations again, which XLA merges with the first. There is no forward derivative
    (`jax.jvp`), and `jax.vmap` runs the program once for each entry.

    Arguments:
        program: any Program; a symbolic one is that at the sizes of the arguments. What it donates stays as it is: donation is
            for `jax.jit` to say.

    Returns:
        A function of arguments nested like the program's, or of any pytree that `pcp.jax_arrays` nests so.

    Raises:
        TooFewDevices: it is a program of several devices.

    Raises, when called:
        TreeMismatch: the arguments are nested otherwise.
        ArgumentMismatch: an array has another shape or element type.
        PrecisionMismatch: an array has 64 bits while JAX computes in 32.
        NoDerivative: in a derivative, an operation has no rule.
    """

    if isinstance(program, SymbolicProgram):
        return functools.partial(_at_sizes_of_arguments, program)
    expect_devices(program, 1, "the one of jax.jit")

    def function(*arguments: Any) -> Any:
        leaves = program.flatten_arguments(*jax_arrays(arguments))
        arrays = []
        for entry, leaf in zip(program.arguments, leaves, strict=True):
            array = jax.numpy.asarray(leaf, entry.spec.dtype.numpy) if is_number(leaf) else leaf
            check(entry, array)
            check_precision(entry.name, entry.spec)
            arrays.append(array)
        return program.unflatten_results(_call(program, *arrays))

    function.__name__ = function.__qualname__ = f"program_{program.digest[:12]}"
    return function


def _at_sizes_of_arguments(program: SymbolicProgram, *arguments: Any) -> Any:
    return to_jax(program.at(**program.sizes_of(*jax_arrays(arguments))))(*arguments)


def _bind(program: Program, *arrays: Array) -> list[Array]:
    results: list[Array] = _PROGRAM.bind(*arrays, program=program)
    return results


def _forward(program: Program, *arrays: Array) -> tuple[list[Array], tuple[Array, ...]]:
    return _call(program, *arrays), arrays


def _backward(program: Program, arrays: tuple[Array, ...], cotangents: Sequence[Array]) -> tuple[Array, ...]:
    pullback = _pullback(program)
    if pullback is None:
        return (None,) * len(arrays)
    known = [
        cotangent
        for cotangent, entry in zip(cotangents, program.results, strict=True)
        if entry.spec.dtype.is_differentiable
    ]
    gradients = iter(_call(pullback, *arrays, *known))
    return tuple(
        next(gradients) if entry.spec.dtype.is_differentiable else None for entry in program.arguments
    )


_call: Callable[..., list[Array]] = jax.custom_vjp(_bind, nondiff_argnums=(0,))
_call.defvjp(_forward, _backward)  # type: ignore[attr-defined]  # it is a custom_vjp, which mypy would not let be called


@functools.lru_cache(maxsize=64)
def _pullback(program: Program) -> Program | None:
    """The vector-Jacobian product for every leaf that has one."""
    wanted = [i for i, entry in enumerate(program.arguments) if entry.spec.dtype.is_differentiable]
    return vjp(_flat(program), wanted) if wanted else None


def _flat(program: Program) -> Program:
    """The program with its arguments and results in no containers, and nothing donated."""
    module = program.module()
    arguments = [replace(entry, alias=None) for entry in program.arguments]
    nesting = [Tree("tuple", (), (LEAF,) * len(entries)) for entries in (arguments, program.results)]
    describe_signature(main_of(module), arguments, program.results, *nesting)
    return Program.from_module(module)


@functools.lru_cache(maxsize=64)
def _inlined(program: Program) -> bytes:
    """A module with nothing but `main`."""
    module = program.module()
    inline_composites(module)
    inline_calls(module)
    return bytecode_of(module)


def _abstract(*_: Any, program: Program) -> list[Any]:
    return [jax.core.ShapedArray(entry.spec.shape, entry.spec.dtype.numpy) for entry in program.results]


def _lower(context: Any, *operands: Any, program: Program) -> list[Any]:
    # JAX's own context: a module of ours would belong to another.
    module = ir.Module.parse(_inlined(program), context.module_context.context)
    return inline_function(main_of(module), operands)


def _evaluate(*arrays: Array, program: Program) -> list[Array]:
    return list(jax.jit(functools.partial(_bind, program))(*arrays))


def _batch(arrays: Sequence[Array], axes: Sequence[int | None], *, program: Program) -> tuple[Any, Any]:
    moved = [
        array if axis is None else jax.numpy.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]
    mapped = [array for array, axis in zip(moved, axes, strict=True) if axis is not None]

    def one(entries: Sequence[Array]) -> list[Array]:
        own = iter(entries)
        return _bind(
            program,
            *(array if axis is None else next(own) for array, axis in zip(moved, axes, strict=True)),
        )

    results = jax.lax.map(one, mapped)
    return results, [0] * len(results)


_PROGRAM: Any = Primitive("pcp_program")  # jax does not annotate its methods
_PROGRAM.multiple_results = True
_PROGRAM.def_abstract_eval(_abstract)
_PROGRAM.def_impl(_evaluate)
mlir.register_lowering(_PROGRAM, _lower)
batching.primitive_batchers[_PROGRAM] = _batch
