"""Programs whose operations run in several places: each operation alone in the arena amid XLA, copies, donation, memory."""

from typing import Any

import numpy as np
from tests.backends.arena.test_operations import REFUSED, UNKNOWN_TO_XLA, arguments_of
from tests.ir.every_operation import bare, by_operation

import pcp
from pcp.backends import Placement, Target
from pcp.backends.regions import RegionsExecutable, compiled_in_places
from pcp.ir import Program
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations
from pcp.ir.tree import flatten
from pcp.rewrite.regions import opened
from pcp.tensor import Tensor

ARENA = "arena:cpu:0"
SHORTER = 20
"""Operations of a program in which one is looked for; most are in a shorter one."""


def keys_of(program: Program, *names: str) -> list[str]:
    """The keys of the operations of these names, in order."""
    module = opened(program)
    keys = operation_digests(module)
    return [keys[op] for op in block_operations(entry_block(module)) if op.name.partition(".")[2] in names]


def elsewhere(program: Program, *names: str, place: str = ARENA) -> Placement:
    """The placement of all operations of these names."""
    found = Placement.of(dict.fromkeys(keys_of(program, *names), place))
    assert found is not None
    return found


def compiled(program: Program, placement: Placement, home: str = "cpu:0") -> RegionsExecutable:
    executable = compiled_in_places(program, Target.of(home), placement, cache=False)
    assert isinstance(executable, RegionsExecutable)
    return executable


def called(
    program: Program, placement: Placement | None, arrays: list[Any], home: str = "cpu:0"
) -> list[Any]:
    target = Target.of(home).with_options(Target.of(home).runner.quick_options(Target.of(home).device))
    executable = compiled_in_places(program, target, placement, cache=False)
    given = [target.place(array, entry.spec) for array, entry in zip(arrays, program.arguments, strict=True)]
    results = executable.run(given)
    assert all(map(target.holds, results))
    return list(map(np.asarray, results))


def amid(program: Program) -> Program:
    """A program that computes the same, with an operation of its own before every argument and behind every result."""

    def around(flag: Tensor, *leaves: Tensor) -> list[Tensor]:
        taken = [pcp.where(flag, leaf, leaf) for leaf in leaves]
        made = pcp.call(program, *program.argument_tree.unflatten(taken))
        return [pcp.where(flag, one, one) for one in flatten(made)[0]]

    return pcp.trace(around, pcp.spec((), "bool"), *(entry.spec for entry in program.arguments))


def assert_near(one: Any, other: Any, what: str) -> None:
    assert (one.shape, one.dtype) == (other.shape, other.dtype), what
    near = {2: 1e-2, 4: 1e-4, 8: 1e-4 if one.dtype.kind == "c" else 1e-7}.get(one.dtype.itemsize, 1e-7)
    np.testing.assert_allclose(
        one.astype(np.complex128), other.astype(np.complex128), rtol=near, atol=near, err_msg=what
    )


def test_each_operation_alone_in_the_arena_amid_a_program_of_xla() -> None:
    """Of every type in which the tables of tests have it; what is before it and behind it runs by XLA."""
    smallest: dict[str, tuple[int, str, Program]] = {}
    refused = REFUSED | UNKNOWN_TO_XLA | {"custom_call"}
    for name, program in [*by_operation(), *((n, p) for n, p in bare() if n not in refused)]:
        module = opened(program)
        names = [op.name.partition(".")[2] for op in block_operations(entry_block(module))]
        for op in {*names} - refused:
            if op not in smallest or len(names) < smallest[op][0]:
                smallest[op] = len(names), name, program
    assert len(smallest) > 85
    expected: dict[str, tuple[list[Any], list[Any]]] = {}
    for op, (size, name, program) in sorted(smallest.items()):
        if size > SHORTER:
            continue
        program = amid(program)
        if name not in expected:
            arrays = arguments_of(program)
            expected[name] = arrays, called(program, None, arrays)
        arrays, right = expected[name]
        for made, one in zip(called(program, elsewhere(program, op), arrays), right, strict=True):
            assert_near(made, one, op)
