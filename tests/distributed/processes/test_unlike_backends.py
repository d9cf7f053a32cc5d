"""One run, trained by Workers of unlike backends: the same programs, and the losses that one device leads to."""

from pathlib import Path

import numpy as np
import pytest

from pcp import backends
from pcp.training.run_folder import RunFolder, load_state
from tests.distributed.processes.command import Command
from tests.distributed.processes.replaying import leases_of, replay
from tests.distributed.processes.test_by_hand import key_of, start_worker
from tests.distributed.tiny_run import assert_equal_arrays

TOML = """
model = "gpt2-nano"
data = "{corpus}"
workers = {workers}
steps = 16
inner_steps = 4
batch = 2
warmup_steps = 4
evaluate_every = 0
checkpoint_every = 16
merge = "mean"
shares = "equal"
"""
LOSSES = 1e-6
"""How far the loss of a round may be from that of one device, relative to it; it was 5e-8."""
PARAMETERS = 2e-4
"""How far a parameter may be: a fifth of the largest step of AdamW, which nearly no gradient takes, too, whatever
its rounding. It was 7e-8 by the arena, and 2e-5 in one element by IREE."""


def train_on(
    devices: list[str],
    tmp_path: Path,
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    more: str = "",
) -> list[str]:
    """Train a run with a Worker on each device, and compare it with a replay of its leases on one device.

    Arguments:
        devices: of the Workers, with further options after them.
        more: settings of the run.

    Returns:
        What each Worker wrote to standard error.
    """
    plan, folder = tmp_path / "run.toml", RunFolder(tmp_path / "run")
    plan.write_text(TOML.format(corpus=corpus, workers=len(devices)) + more, encoding="utf-8")
    with Command(["shepherd", str(plan), "--run", str(folder.path)], tmp_path) as shepherd:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        keys = [key_of(f"w{number}", folder.path, capsys) for number in range(len(devices))]
        workers = [
            start_worker(address, key, tmp_path, "--device", *device.split())
            for key, device in zip(keys, devices, strict=True)
        ]
        try:
            assert shepherd.end() == 0, shepherd.said + "".join(worker.said for worker in workers)
            assert [worker.end() for worker in workers] == [0] * len(devices)
        finally:
            for worker in workers:
                worker.__exit__(None, None, None)
    rounds = [record for record in shepherd.records if "round" in record]
    assert [record["contributions"] for record in rounds] == [len(devices)] * 4
    assert rounds[-1]["tokens"] == len(devices) * 16 * 2 * 64
    joined = [record for record in shepherd.records if record.get("state") == "joining"]
    assert sorted(record["reason"] for record in joined) == sorted(device.split()[0] for device in devices)

    losses: list[float] = []
    order = [record["worker"] for record in joined]
    parameters = replay(folder, leases_of(shepherd.records), order, losses)
    np.testing.assert_allclose([record["loss"] for record in rounds], losses, rtol=LOSSES)
    assert losses[-1] < losses[0] - 0.3
    assert_equal_arrays(load_state(folder)[1]["params"], parameters, 0, PARAMETERS)
    return [worker.said for worker in workers]


@pytest.mark.runs
def test_xla_and_the_arena_train_one_run(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_on(["cpu:0", "arena:cpu"], tmp_path, corpus, capsys)


@pytest.mark.long
def test_pytorch_trains_one_run_with_xla(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    train_on(["cpu:0", "torch:cpu"], tmp_path, corpus, capsys)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("llvm-cpu", marks=pytest.mark.runs), pytest.param("vulkan", marks=pytest.mark.long)],
)
def test_iree_trains_one_run_with_xla_and_the_arena(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Vulkan is that of a GPU, or of Mesa's lavapipe, which takes a second for a step."""
    pytest.importorskip("iree.compiler")
    pytest.importorskip("iree.runtime")
    if kind not in {device.kind for device in backends.devices("iree")}:
        pytest.skip(f"there is no device iree:{kind}")
    train_on([f"iree:{kind}", "arena:cpu", "cpu:0"], tmp_path, corpus, capsys)


@pytest.mark.runs
def test_a_worker_without_a_compiler_trains_by_artifacts(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("iree.compiler")
    pytest.importorskip("iree.runtime")
    more = 'artifacts = "llvm-cpu:generic"'
    said = train_on(["iree:llvm-cpu --artifact-only", "cpu:0"], tmp_path, corpus, capsys, more)
    assert "verif" not in said[0].partition("with limits")[2], (
        "nothing is verified, since nothing is compiled"
    )
