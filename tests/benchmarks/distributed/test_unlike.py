"""What the benchmark of unlike fleets makes of what a Shepherd says."""

from pathlib import Path

import pytest
from benchmarks.distributed.unlike import draw, summary, table

RECORDS = [
    {"worker": "w0", "lease": "0-5"},
    {"worker": "w1", "lease": "6-7"},
    {"worker": "w1", "lease": "push"},
    {"round": 1, "tokens": 800, "loss": 3.0, "time": 10.0},
    {"round": 2, "tokens": 1600, "loss": 2.5, "time": 14.0},
    {"round": 3, "tokens": 2400, "loss": 2.0, "time": 18.0},
    {"validation_loss": 2.25},
]


def test_throughput_loss_and_shares(tmp_path: Path) -> None:
    row = summary(RECORDS, ["cpu:0", "arena:cpu", "iree:vulkan"], warm=1)
    assert row["tokens_per_second"] == pytest.approx(200.0)
    assert (row["loss"], row["validation_loss"], row["rounds"]) == (2.0, 2.25, 3)
    assert row["shares"] == [["cpu:0", 0.75], ["arena:cpu", 0.25], ["iree:vulkan", 0.0]]
    said = table({"unlike": row})
    assert "| unlike | 200 | 2.0000 | 2.2500 | 3 | cpu:0 75 %, arena:cpu 25 %, iree:vulkan 0 % |" in said
    draw({"like": row, "unlike": row}, tmp_path / "unlike.png")
    assert (tmp_path / "unlike.png").read_bytes().startswith(b"\x89PNG")
