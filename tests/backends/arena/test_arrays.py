"""Arrays of the arena at its border: what is donated, what somebody looks at, and what may be used where it lies."""

import numpy as np
import pytest

import pcp
from pcp.backends.arena.array import ArenaArray, DeletedArray
from pcp.planning.compiled import DonatedTwice

SIZE = 3000  # above the size up to which arguments are copied
STATE = pcp.spec((SIZE,), "f32")
STEP = pcp.trace(lambda s, x: s * 2 + x, STATE, STATE, roles=("state", "input"))
SWAP = pcp.trace(lambda a, b: (b, a), STATE, STATE, roles=("state", "state"))
ONE = np.ones(SIZE, np.float32)


def test_state_is_written_in_place() -> None:
    plan = pcp.plan(STEP, "arena:cpu")
    first = plan.run(ONE, ONE)
    memory = first.array
    second = plan.run(first, ONE)
    assert isinstance(second, ArenaArray)
    assert second.array is memory
    assert plan.memory["cpu:0"].aliased == 4 * SIZE
    np.testing.assert_array_equal(np.asarray(second), 7 * ONE)
    with pytest.raises(
        DeletedArray, match=r"the memory of this array of shape \(3000,\) was donated to a call; use the"
    ):
        np.asarray(first)


def test_what_somebody_looks_at_is_not_overwritten() -> None:
    plan = pcp.plan(STEP, "arena:cpu")
    first = plan.run(ONE, ONE)
    shown = np.asarray(first)
    assert not shown.flags.writeable
    plan.run(first, ONE)
    np.testing.assert_array_equal(shown, 3 * ONE)


def test_an_array_is_donated_once() -> None:
    plan = pcp.plan(SWAP, "arena:cpu")
    state, _ = plan.run(ONE, ONE)
    with pytest.raises(
        DonatedTwice, match="arguments a and b are the same array, but its memory can be donated only once"
    ):
        plan.run(state, state)


def test_results_are_no_part_of_the_workspace() -> None:
    plan = pcp.plan(pcp.trace(lambda x: (x + 1, x.sum()), STATE), "arena:cpu")
    first, total = plan.run(ONE)
    plan.run(2 * ONE)
    np.testing.assert_array_equal(np.asarray(first), 2 * ONE)
    assert float(total) == SIZE


def test_only_memory_that_nobody_writes_to_is_used_where_it_lies() -> None:
    plan = pcp.plan(pcp.trace(lambda x: x + 1, STATE), "arena:cpu")
    read_only = np.frombuffer(ONE.tobytes(), np.float32)
    (placed,), (copied,) = plan.place(read_only), plan.place(ONE)
    assert np.shares_memory(placed.array, read_only)
    assert not np.shares_memory(copied.array, ONE)


def test_a_swap_of_states_does_not_lose_one() -> None:
    a, b = pcp.plan(SWAP, "arena:cpu").run(ONE, 2 * ONE)
    np.testing.assert_array_equal(np.asarray(a), 2 * ONE)
    np.testing.assert_array_equal(np.asarray(b), ONE)
