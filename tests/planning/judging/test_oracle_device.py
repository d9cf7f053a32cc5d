"""Float64 results come from the processor where the device has too little memory for them."""

import logging
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import backends
from pcp.backends import Device, OutOfMemory, Target
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.reference import Oracle, Reference

SMALL = Device("tiny", 0, 1)
TARGET = Target("tiny", (SMALL,))
X = np.random.default_rng(0).normal(size=(3,)).astype(np.float32)


class WithASmallDevice:
    """XLA, and a device on which nothing fits."""

    def __init__(self) -> None:
        self.xla = backends.backend()
        self.asked: list[str] = []

    def devices(self) -> list[Device]:
        return [SMALL, *self.xla.devices()]

    def compile(self, program: Any, target: Target, *, cache: bool) -> Any:
        self.asked.append(target.platform)
        if target.device == SMALL:
            raise OutOfMemory("too large for the tiny device")
        return self.xla.compile(program, target, cache=cache)

    def is_buffer(self, value: object) -> bool:
        return self.xla.is_buffer(value)

    def place(self, array: Any, spec: Any, target: Target, *, alias: bool) -> Any:
        return self.xla.place(array, spec, target, alias=alias)

    def wait(self, buffers: Any) -> None:
        self.xla.wait(buffers)

    def quick_options(self, target: Target) -> Any:
        return self.xla.quick_options(target)


def use(backend: WithASmallDevice, monkeypatch: pytest.MonkeyPatch) -> WithASmallDevice:
    """Let targets name it `tiny`."""
    xla = backends.backend
    monkeypatch.setattr("pcp.backends.target.backend", lambda name: backend if name == "tiny" else xla(name))
    return backend


def test_the_processor_takes_over_and_stays(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = pcp.trace(lambda x: x * x, pcp.spec((3,), "f32"))
    backend = use(WithASmallDevice(), monkeypatch)
    oracle = Oracle(widened(narrow), narrow, TARGET)
    with caplog.at_level(logging.INFO, "pcp.planning.judging.reference"):
        for _ in range(2):
            (result,) = oracle.run([X])
            np.testing.assert_array_equal(np.asarray(result), X.astype(np.float64) ** 2)
    assert backend.asked == ["tiny", "cpu"]
    assert "tiny:0 has too little memory: too large" in caplog.text


def test_without_a_processor_the_error_is_the_device_s(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = pcp.trace(lambda x: x * x, pcp.spec((3,), "f32"))
    backend = use(WithASmallDevice(), monkeypatch)
    monkeypatch.setattr(backend, "devices", lambda: [SMALL])
    with pytest.raises(OutOfMemory, match="too large for the tiny device"):
        Oracle(widened(narrow), narrow, TARGET).run([X])


@pytest.mark.parametrize(
    ("judged_at", "bytes_of_float64", "needed"),
    [
        (1e-2, "0", ["other_roundings"]),
        (1e-2, "1e9", []),
        (1e-4, "0", ["float64"]),
        (None, "1e9", ["float64"]),
    ],
)
def test_what_will_be_evaluated_is_known_before_the_plain_path_is_compiled(
    judged_at: float | None, bytes_of_float64: str, needed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PCP_FLOAT64_BYTES", bytes_of_float64)
    narrow = pcp.trace(lambda x: x * x, pcp.spec((3,), "f32"))
    reference = Reference(widened(narrow), narrow, Target.of("cpu:0"))
    found = reference.surely_needed(judged_at)
    assert found == [getattr(reference, name) for name in needed]
