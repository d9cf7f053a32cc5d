"""`pcp train --audit-rate` as a whole: real workers repeat each other's steps, and come to the same bits."""

from collections import Counter
from pathlib import Path

import pytest

from pcp.distributed.coordinator import Coordinator, DirectoryStorage, EventLog
from pcp.training.run_folder import RunFolder
from tests.distributed.processes.command import Command
from tests.distributed.processes.test_streaming_run import STREAMING


@pytest.mark.runs
@pytest.mark.parametrize(
    "options",
    [pytest.param(["--inner-steps=6"], id="diloco"), pytest.param(STREAMING, id="streaming")],
)
def test_workers_confirm_each_other(options: list[str], tmp_path: Path, small: list[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    # Every lease is audited: the Shepherd draws its seed afresh, and with a share of so few there may be none.
    with Command(["train", *small, *options, "--audit-rate=1", "--run", str(folder.path)], tmp_path) as train:
        assert train.end() == 0, train.said
        records = train.records
    verdicts = Counter(record["verdict"] for record in records if record.get("event") == "audit")
    assert verdicts["confirmed"] > 0
    assert set(verdicts) <= {"confirmed", "undecided"}
    storage = DirectoryStorage(folder.path / "coordinator")
    coordinator = Coordinator.restore(EventLog(storage).records())
    storage.close()
    assert coordinator.state.run.finished
    assert coordinator.state.run.barred == {}
