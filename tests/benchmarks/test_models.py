"""The comparison of models that PCP did not write: its errors and its rows; the models themselves need packages of peers."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.models.contestants import BETAS, _error_of
from benchmarks.models.models import line_of


@pytest.mark.parametrize(("off", "error", "name"), [(0.0, 0.0, ""), (0.01, 0.01, "weight"), (1e-9, 0.0, "")])
def test_a_gradient_that_is_nothing_is_judged_on_the_scale_of_all(
    off: float, error: float, name: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    right = {"weight": rng.normal(size=(8, 8)), "key.bias": 1e-12 * rng.normal(size=8)}
    for key, exact in right.items():
        np.save(tmp_path / f"{key}.npy", exact)

    def moments() -> Iterator[tuple[str, Any]]:
        yield "weight", (1 - BETAS[0]) * (1 + off) * right["weight"]
        yield "key.bias", -(1 - BETAS[0]) * right["key.bias"]  # wrong by twice its own size

    contestant: Any = SimpleNamespace(moments=moments)
    found, worst = _error_of(contestant, tmp_path)
    assert found == pytest.approx(error, rel=1e-3, abs=1e-8)
    assert worst == name or not error


def test_rows_as_text() -> None:
    row = {
        "contestant": "PCP within 0.1", "step_seconds": 0.05, "fastest_seconds": 0.049, "slowest_seconds": 0.052,
        "peak_bytes": 2**33, "ready_seconds": 90.0, "again_seconds": 14.0, "error": 0.012, "error_of": "w", "about": "",
    }  # fmt: skip
    assert "90.0 s   14.0 s      50.0 ms (      49.0 to 52.0)    8.0 GiB    0.012  of w" in line_of(row)
    assert line_of({"contestant": "plain", "about": "it does not fit"}).endswith("left out: it does not fit")
