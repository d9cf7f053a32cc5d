"""Programs whose operations run in several places: each operation alone in the arena amid XLA, copies, donation, memory."""

from typing import Any

import numpy as np
import pytest
from tests.backends.arena.test_operations import REFUSED, UNKNOWN_TO_XLA, arguments_of
from tests.ir.every_operation import bare, by_operation
from tests.suite.share import part

import pcp
from pcp.backends import Placement, Target
from pcp.backends.regions import Drop, RegionsExecutable, Run, compiled_in_places
from pcp.ir import Program
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations
from pcp.ir.tree import flatten
from pcp.rewrite.regions import NotDivisible, UnknownOperation, opened
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
    target = Target.of(home).with_options(Target.of(home).runner.quick_options(Target.of(home)))
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


@pytest.mark.parametrize("of", [3, pytest.param(1, marks=pytest.mark.long)])
def test_each_operation_alone_in_the_arena_amid_a_program_of_xla(of: int) -> None:
    """Of every type in which the tables of tests have it; what is before it and behind it runs by XLA. A run takes a third."""
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
    short = {op: (name, program) for op, (size, name, program) in smallest.items() if size <= SHORTER}
    for op in part(sorted(short), of):
        name, program = short[op]
        program = amid(program)
        if name not in expected:
            arrays = arguments_of(program)
            expected[name] = arrays, called(program, None, arrays)
        arrays, right = expected[name]
        for made, one in zip(called(program, elsewhere(program, op), arrays), right, strict=True):
            assert_near(made, one, op)


def test_regions_alternate_where_operations_do_and_copies_are_explicit() -> None:
    program = pcp.trace(lambda x: pcp.tanh(pcp.sin(pcp.tanh(x))) + x, pcp.spec((6,), "f32"))
    executable = compiled(program, elsewhere(program, "tanh"))
    shown = [(type(step).__name__, step.place) for step in executable.steps if not isinstance(step, Drop)]
    assert shown == [
        *(("Copy", 1), ("Run", 1)),  # the argument to the arena
        *(("Copy", 0), ("Run", 0)),
        *(("Copy", 1), ("Run", 1)),
        *(("Copy", 0), ("Run", 0)),
    ]
    assert [copy.spec.bytes for copy in executable.copies] == [24] * 4
    assert "4: 2 on cpu:0 by arena, 2 on cpu:0 by xla; 4 values of 96 bytes" in executable.described()


def test_what_several_operations_read_in_one_place_is_copied_there_once() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = pcp.sin(x)
        return pcp.tanh(y), pcp.exp(y), pcp.cos(y)

    program = pcp.trace(function, pcp.spec((6,), "f32"))
    copies = compiled(program, elsewhere(program, "tanh", "exponential", "cosine")).copies
    assert [(copy.source, copy.place) for copy in copies] == [(0, 1), (1, 0), (1, 0), (1, 0)]


@pytest.mark.parametrize("seed", range(3))
def test_operations_anywhere_compute_what_one_place_computes(seed: int) -> None:
    """In three places, chosen at random, two of which have one memory."""
    rng = np.random.default_rng(seed)

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        values = [x, y]
        for _ in range(12):
            one, two = (values[index] for index in rng.integers(0, len(values), 2))
            values.append(
                (one @ two * 0.3, pcp.tanh(one), one + two, pcp.sum(one, 0, keepdims=True) - two)[
                    rng.integers(4)
                ]
            )
        return [*values[-3:], x, values[-1]]

    program = pcp.trace(function, *[pcp.spec((4, 4), "f32")] * 2)
    keys = keys_of(program, "dot_general", "tanh", "add", "subtract", "multiply", "reduce", "reshape")
    places = [ARENA, "xla:cpu:0", ""]
    placement = Placement.of({key: place for key in keys if (place := places[rng.integers(3)])})
    arrays = arguments_of(program)
    for home in ("cpu:0", "arena:cpu"):
        for made, one in zip(
            called(program, placement, arrays, home), called(program, None, arrays), strict=True
        ):
            assert_near(made, one, home)


def test_state_is_donated_and_given_back_wherever_the_update_runs() -> None:
    loss = pcp.trace(lambda w, x: ((x @ w) ** 2).mean(), np.ones((3, 2), np.float32), pcp.spec((8, 3), "f32"))
    step = pcp.training_step(loss, pcp.optimizers.adamw(1e-2))
    x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    for names in (["dot_general"], ["add", "multiply", "sqrt"]):
        path = pcp.Path.plain(step).placed(elsewhere(step, *names))
        plans = pcp.plan(step, path=path), pcp.plan(step)
        states = [step.initial_state(np.ones((3, 2), np.float32)) for _ in plans]
        for _ in range(3):
            for index, plan in enumerate(plans):
                before = plan.place(states[index], (x,))
                states[index], metrics = plan.run(*before)
                assert all(map(plan.backend.is_deleted, flatten(before[0])[0]))
                assert np.isfinite(metrics["loss"])
        for one, two in zip(*(flatten(state)[0] for state in states), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(two), rtol=1e-5, atol=1e-7)
        home = str(plans[1].device)
        assert plans[0].memory[home].peak >= plans[1].memory[home].arguments


def test_a_result_that_is_an_argument_or_another_result_is_an_array_of_its_own() -> None:
    program = pcp.trace(lambda x: (x, pcp.tanh(pcp.sin(x)), pcp.tanh(pcp.sin(x)), x), pcp.spec((5,), "f32"))
    target = Target.of("cpu:0")
    x = target.place(np.linspace(0, 1, 5), program.arguments[0].spec)
    results = compiled(program, elsewhere(program, "tanh")).run([x])
    assert len({id(each) for each in (x, *results)}) == 5
    for made in (results[0], results[3]):
        np.testing.assert_array_equal(made, x)
    np.testing.assert_array_equal(results[1], results[2])


def test_memory_counts_what_lives_at_once_on_a_device_whatever_backends_use_it() -> None:
    program = pcp.trace(lambda x: pcp.sum(pcp.tanh(pcp.sin(x))), pcp.spec((1000,), "f32"))
    [(device, use)] = compiled(program, elsewhere(program, "tanh")).memories.items()
    assert str(device) == "cpu:0"
    assert use.arguments + use.results == 4004
    assert (
        8000 <= use.temporaries <= 20000
    )  # what tanh reads in the arena and what it makes there, and little more


@pytest.mark.parametrize(
    ("name", "match"),
    [
        (
            "rng",
            r"the program has stablehlo\.rng, which does more than to compute arrays .*: leave the placement out",
        ),
        ("outfeed", r"the program has stablehlo\.outfeed, which does more than"),
    ],
)
def test_programs_that_run_as_a_whole_only_are_refused(name: str, match: str) -> None:
    program = dict(bare())[name]
    with pytest.raises(NotDivisible, match=match):
        compiled(program, Placement((("0" * 64, ARENA),)))


def test_operations_that_are_not_there_are_refused() -> None:
    program = pcp.trace(pcp.tanh, pcp.spec((5,), "f32"))
    with pytest.raises(
        UnknownOperation,
        match=r"1 of 1 operations that are told where to run are not in program \w{12}, the first of them 0{12}; expected keys",
    ):
        compiled(program, Placement((("0" * 64, ARENA),)))


def test_what_is_otherwise_computed_wherever_it_is_read_runs_where_it_is_told_to() -> None:
    program = pcp.trace(lambda x: pcp.tanh(x) + 0.5, pcp.spec((6,), "f32"))
    for name in ("constant", "broadcast_in_dim"):
        steps = compiled(program, elsewhere(program, name)).steps
        assert {step.place for step in steps if isinstance(step, Run)} == {0, 1}, name
