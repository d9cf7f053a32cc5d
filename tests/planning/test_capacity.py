"""Memory is checked before compiling and again before running, and the message says what to do."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Device, MemoryUse, OutOfMemory, Target
from pcp.backends.xla import XLABackend
from pcp.planning.capacity import InvalidMemoryLimit, human, lower_bound, memory_limit


@pytest.fixture(scope="module")
def chain() -> pcp.Program:
    """Small arguments and results, large values between them.

    Of integers, because XLA's CPU library for products of floats allocates values that XLA does not report.
    """

    def function(x: pcp.Tensor, y: pcp.Tensor) -> pcp.Tensor:
        outer = x @ y
        return (outer @ outer).sum(0)

    return pcp.trace(function, pcp.spec((200, 1), "i32"), pcp.spec((1, 200), "i32"))


def test_arguments_that_do_not_fit_are_refused_before_compiling(
    chain: pcp.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_(*_: Any, **__: Any) -> None:
        raise AssertionError("it was compiled")

    monkeypatch.setattr(XLABackend, "compile", compile_)
    message = (
        r"the program needs at least 2.3 KiB on [a-z]+:0, which has 2.0 KiB: arguments 1.6 KiB, results 800 bytes, "
        r"less 0 bytes that donated arguments share with results\n"
        r"  largest arguments: x i32\[200,1\], 800 bytes; y i32\[1,200\], 800 bytes\n"
        r"  give the role 'state' to arguments that the program replaces"
    )
    with pytest.raises(OutOfMemory, match=message):
        pcp.plan(chain, memory=2048)


def test_temporaries_that_do_not_fit_are_refused_before_running(
    chain: pcp.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    (device, use), *_ = pcp.plan(chain).memory.items()
    assert use.temporaries >= 200 * 200 * 4
    monkeypatch.setenv("PCP_MEMORY_LIMIT", str(use.peak - 1))
    with pytest.raises(OutOfMemory, match=r"temporaries .* KiB, less 0 bytes") as caught:
        pcp.plan(chain)
    assert f"the program needs {human(use.peak)} on {device}" in str(caught.value)
    assert "largest values inside: dot_general i32[200,200], 156.2 KiB, at " in str(caught.value)
    assert "test_capacity.py:" in str(caught.value)
    assert "use a smaller batch" in str(caught.value)
    assert "where values are made again, and the batch is computed in parts, it takes at least" in str(
        caught.value
    )
    pcp.plan(chain, memory=use.peak)


def test_the_environment_can_limit_it(chain: pcp.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_MEMORY_LIMIT", "1000")
    with pytest.raises(OutOfMemory, match="which has 1000 bytes"):
        pcp.plan(chain)
    pcp.plan(chain, memory=2**30)
    monkeypatch.setenv("PCP_MEMORY_LIMIT", "plenty")
    with pytest.raises(
        InvalidMemoryLimit, match="the memory limit 'plenty' is not a positive number of bytes"
    ):
        pcp.plan(chain)


def target_of(*capacities: int) -> Target:
    return Target("xla", tuple(Device("cpu", index, each) for index, each in enumerate(capacities)))


@pytest.mark.parametrize("limit", [0, -5, "2 XiB", "0MB", True, "1.5.2GiB", "much"])
def test_a_limit_must_be_positive(limit: Any) -> None:
    with pytest.raises(
        InvalidMemoryLimit,
        match=f"the memory limit {limit!r} is not a positive number of bytes; give one like 1073741824, '2GiB' or '500MB'",
    ):
        memory_limit(target_of(100), limit)


@pytest.mark.parametrize(
    ("limit", "count"), [(5, 5), ("2GiB", 2**31), ("1.5 KiB", 1536), ("3MB", 3_000_000), ("7", 7), ("8 B", 8)]
)
def test_limits(limit: Any, count: int) -> None:
    assert memory_limit(target_of(2**40), limit) == count


def test_a_limit_never_exceeds_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PCP_MEMORY_LIMIT", raising=False)
    assert [memory_limit(target_of(120, 100), limit) for limit in (None, 99, 101)] == [100, 99, 100]


def test_donated_memory_is_counted_once() -> None:
    state = {"w": np.ones((10, 10), np.float32)}
    program = pcp.trace(lambda s, x: ({"w": s["w"] * x}, x), state, np.float32(2), roles=("state", "input"))
    assert lower_bound(program) == MemoryUse(404, 404, 400, 0, exact=False)
    assert lower_bound(program).peak == 408


def test_a_tensor_beyond_any_memory_is_refused_at_once() -> None:
    program = pcp.trace(lambda x: x, pcp.spec((2**20, 2**20), "f64"))
    with pytest.raises(
        OutOfMemory, match=r"needs at least 16.0 TiB .*\n.* x f64\[1048576,1048576\], 8.0 TiB"
    ):
        pcp.plan(program)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB"), (2**52, "4096.0 TiB")],
)
def test_bytes_as_people_write_them(count: int, text: str) -> None:
    assert human(count) == text
