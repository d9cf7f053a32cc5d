"""Contestants in processes of their own."""

import os
from collections.abc import Callable

import pytest
from benchmarks.own_process import OwnProcess


def adder(amount: int) -> tuple[int, Callable[[int], int]]:
    return os.getpid(), lambda number: number + amount


def nobody() -> None:
    return None


def broken() -> None:
    raise RuntimeError("it cannot be made")


def test_a_contestant_is_called_in_another_process() -> None:
    with OwnProcess(adder, 3) as contestant:
        assert contestant.made != os.getpid()
        seconds, result = contestant.call(4)
    assert result == 7
    assert seconds > 0


def test_one_that_is_not_there_says_so() -> None:
    with OwnProcess(nobody) as contestant:
        assert contestant.made is None


def test_one_that_cannot_be_made_does_not_hang() -> None:
    with pytest.raises(EOFError):
        OwnProcess(broken)
