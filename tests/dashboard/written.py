"""A run's folder as a Shepherd leaves it, written by hand."""

import json
import time
from pathlib import Path
from typing import Any

from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def written_run(path: Path, workers: int = 3) -> RunFolder:
    """A live run of some workers: the first trains, the last is lost, and somebody without a key was refused."""
    folder = RunFolder.create(
        path, TrainingConfig(workers=workers, steps=200, inner_steps=50, warmup_steps=10)
    )
    now = time.time()
    add(folder, now - 20, event="listening", address="127.0.0.1:7433", run=str(path))
    for number in range(workers):
        name = f"w{number}"
        add(folder, now - 19, event="worker", worker=name, state="joining", reason="cpu:0")
        add(folder, now - 19, event="worker", worker=name, planned="path 0123: 0.45 of the plain time")
        add(folder, now - 18, event="worker", worker=name, state="training", lease="0-49")
        facts = {"updates": 1, "tokens": 38400, "trained_seconds": 7.6, "loss": 2.5}
        add(folder, now - 10, event="worker", worker=name, state="waiting", lease="", **facts)
    add(folder, now - 9, step=50, loss=2.5, tokens_per_second=1000.0, round=1, tokens=38400 * workers)
    add(folder, now - 8, event="worker", worker="w0", state="training", lease="150-199")
    lost = {"worker": f"w{workers - 1}", "state": "lost", "reason": HOSTILE}
    add(folder, now - 8, event="worker", **lost)
    add(folder, now - 5, event="refused", kind="CertificateRefused", count=1, latest=f"10.0.0.9: {HOSTILE}")
    refused = {
        "refused_updates": {"the lease had ended": 2},
        "refused_connections": {"CertificateRefused": 14},
    }
    add(folder, now - 1, event="totals", sent=5_000_000, received=700_000, paused=False, **refused)
    return folder


def add(folder: RunFolder, time: float, **record: Any) -> None:
    """Write one more record."""
    with folder.metrics_file.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record | {"time": time}) + "\n")
