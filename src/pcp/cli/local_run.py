"""A Shepherd and Workers on this machine: started, shown, kept alive, ended together."""

import json
import os
import sys
import time
from pathlib import Path

from pcp.cli.keys import authority_of
from pcp.distributed.supervisor import Child, Supervisor
from pcp.training.metrics import MetricSink
from pcp.training.recipe import prepare
from pcp.training.run_folder import RunFolder

POLL_SECONDS = 0.2


def train_with_workers(folder: RunFolder, shown: MetricSink) -> None:
    """Run a Shepherd and its Workers to the end.

    Arguments:
        folder: of the run; an interrupted run goes on.
        shown: receives every record that the Shepherd writes from now on.

    Raises:
        ChildFailed: a process cannot be kept alive.
    """
    config = folder.config()
    prepare(folder)  # errors about data and model are shown here, not in a log
    authority = authority_of(folder)
    names = [f"worker-{number}" for number in range(config.workers)]
    for name in names:
        key = folder.path / "keys" / f"{name}.pem"
        if not key.exists():
            authority.issue(name, "worker").save_bundle(key)
    metrics = _Tail(folder.metrics_file)
    address = folder.path / "address.json"
    address.unlink(missing_ok=True)
    shepherd = Child("shepherd", [sys.executable, "-m", "pcp", "shepherd", str(folder.path), "--supervised"])
    workers = [Child(name, _worker_command(folder, name, index)) for index, name in enumerate(names)]
    supervisor = Supervisor([shepherd, *workers], folder.path / "logs")
    try:
        supervisor.start("shepherd")
        waiting = True
        while not supervisor.finished("shepherd"):
            time.sleep(POLL_SECONDS)
            for record in metrics.read():
                shown.write(record)
            for event in supervisor.poll():
                if event.restarted:
                    shown.write({"event": "restart", "process": event.name, "code": event.code})
            if waiting and address.exists():
                waiting = False
                for child in workers:
                    supervisor.start(child.name)
        for record in metrics.read():
            shown.write(record)
    finally:
        supervisor.stop()


def _worker_command(folder: RunFolder, name: str, index: int) -> list[str]:
    """A worker that finds the Shepherd's address in the run's folder; each has its share of the processors."""
    cpus = sorted(os.sched_getaffinity(0))
    workers = folder.config().workers
    share = cpus[index::workers] if len(cpus) >= workers else [cpus[index % len(cpus)]]
    command = [sys.executable, "-m", "pcp", "worker", "--connect", f"@{folder.path / 'address.json'}"]
    command += [
        "--key",
        str(folder.path / "keys" / f"{name}.pem"),
        "--folder",
        str(folder.path / "workers" / name),
    ]
    return [*command, "--device", folder.config().device, "--cpus", ",".join(map(str, share)), "--supervised"]


class _Tail:
    """The records that are added to a file from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def read(self) -> list[dict[str, object]]:
        """The whole lines added since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
