"""Native kernels are code of the CPU: their tests run there, whichever platform the suite is run for."""

import pytest


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_DEVICE", "cpu:0")
