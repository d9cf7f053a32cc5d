"""A tensor that no address space or no device holds is refused before anything runs, wherever it appears."""

from collections.abc import Callable
from typing import Any

import pytest

import pcp
from pcp.backends import OutOfMemory
from pcp.ir import InvalidShape

LONG = pcp.spec((2**40,), "f32")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: pcp.einsum("i,j->ij", x, x),
        lambda x: x[:, None] * x[None, :],
        lambda x: x.reshape(-1, 1) @ x.reshape(1, -1),
        lambda x: pcp.pad(x, [(2**59, 0)]),
        lambda x: pcp.broadcast_to(x, (2**20, 2**40)),
        lambda _: pcp.zeros((2**40, 2**40)),
    ],
)
def test_no_operation_makes_one(function: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidShape, match=r"has .*e\+\d\d elements, more than any memory holds"):
        pcp.trace(function, LONG)


def test_no_argument_is_one() -> None:
    with pytest.raises(InvalidShape, match=r"shape \(1073741824, 1073741824\) has 1.15e\+18 elements"):
        pcp.spec((2**30, 2**30), "f32")


def test_no_file_holds_one() -> None:
    text = "func.func public @main(%a: tensor<2x1099511627776x1099511627776xf32>) { return }"
    with pytest.raises(InvalidShape, match="more than any memory holds"):
        pcp.Program.parse(text)


def test_one_that_only_the_device_lacks_is_refused_by_the_plan() -> None:
    program = pcp.trace(lambda x: x + 1, LONG)
    with pytest.raises(
        OutOfMemory, match=r"needs at least 8\.0 TiB on cpu:0, which has .*: arguments 4\.0 TiB"
    ):
        pcp.plan(program)
