"""A Shepherd and Workers on this machine: started, shown, kept alive, ended together."""

import os
import sys
import time
from pathlib import Path

from pcp.cli.keys import authority_of, check_lifetime
from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.algorithms import Topology
from pcp.distributed.supervisor import Child, Supervisor
from pcp.distributed.wire import Credentials
from pcp.training.display.metrics import MetricSink, Tail
from pcp.training.run_folder import RunFolder

POLL_SECONDS = 0.1


def train_with_workers(folder: RunFolder, shown: MetricSink) -> None:
    """Run a Shepherd and its Workers to the end.

    Arguments:
        folder: of the run, whose data is prepared; an interrupted run goes on.
        shown: receives every record that the Shepherd writes from now on.

    Raises:
        ChildFailed: a process cannot be kept alive.
    """
    config = folder.config()
    authority = authority_of(folder)
    own = authority.issue("shepherd", "shepherd")
    check_lifetime(folder, own)  # the Shepherd would say so in its log alone
    names = [f"worker-{number}" for number in range(config.workers)]
    for name in names:
        key = folder.path / "keys" / f"{name}.pem"
        if not key.exists() or Credentials.load_bundle(key).authority != own.authority:  # it was renewed
            authority.issue(name, "worker").save_bundle(key)
    metrics = Tail(folder.metrics_file, from_end=True)
    address_of(folder).unlink(missing_ok=True)
    # Their output goes to files, which may say more than a terminal should.
    environment = {"PCP_LOG": os.environ.get("PCP_LOG", "INFO")}
    command = [sys.executable, "-m", "pcp"]
    shepherd = Child("shepherd", [*command, "shepherd", str(folder.path), "--supervised"], environment)
    workers = [
        Child(name, [*command, "worker", *_worker_arguments(folder, name, index)], environment)
        for index, name in enumerate(names)
    ]
    supervisor = Supervisor([shepherd, *workers], folder.path / "logs")
    try:
        supervisor.start()
        while not supervisor.finished("shepherd"):
            time.sleep(POLL_SECONDS)
            for record in metrics.read():
                shown.write(record)
            for event in supervisor.poll():
                if event.restarted:
                    shown.write({"event": "restart", "process": event.name, "code": event.code})
        for record in metrics.read():
            shown.write(record)
    finally:
        supervisor.stop()


def address_of(folder: RunFolder) -> Path:
    """The file in which the Shepherd of a run says where it listens."""
    return folder.path / "address.json"


def _worker_arguments(folder: RunFolder, name: str, index: int) -> list[str]:
    """A worker that finds the Shepherd's address in the run's folder; each has its share of the processors."""
    arguments = ["--connect", f"@{address_of(folder)}", "--key", str(folder.path / "keys" / f"{name}.pem")]
    arguments += ["--folder", str(folder.path / "workers" / name), "--device", folder.config().device]
    if algorithm_of(folder.config()).topology is Topology.PAIRS:
        arguments += ["--listen", "127.0.0.1:0"]
    return [*arguments, *_share_of_processors(index, folder.config().workers), "--supervised"]


def _share_of_processors(index: int, workers: int) -> list[str]:
    if not hasattr(os, "sched_getaffinity"):  # only Linux can keep a process to some processors
        return []
    cpus = sorted(os.sched_getaffinity(0))
    share = cpus[index::workers] if len(cpus) >= workers else [cpus[index % len(cpus)]]
    return ["--cpus", ",".join(map(str, share))]
