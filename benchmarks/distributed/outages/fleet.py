"""A Shepherd and Workers on emulated machines, each with a line, a disk and a clock; a process that ends is started again."""

import contextlib
import json
import signal
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import pcp
from benchmarks.distributed.machines.isolation import built, small_disk
from benchmarks.distributed.machines.network import Line, Network
from benchmarks.distributed.machines.process import Process, Record
from pcp.distributed.wire import Authority
from pcp.training.data.safetensors_file import write_arrays

SHEPHERD = "shepherd"
DISK_MEGABYTES = 160
RESTART_SECONDS = 0.5
BATCH, FEATURES, WIDTH = 8, 16, 64


@dataclass
class Machine:
    """A machine with one process, which may be a successor of others.

    Arguments:
        name: of the machine.
        folder: its disk.
        process: that runs now.
        started: how many have.
        steps: when each training step ended here, of all processes.
        seen: when the Shepherd told of work: of its own any lease, update or round, of a Worker's its leases and updates.
        ready: when each process had started: a Shepherd listened, a Worker had its programs verified and compiled.
    """

    name: str
    folder: Path
    process: Process | None = None
    started: int = 0
    steps: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    position: int = 0

    def shift_clock(self, seconds: float) -> None:
        """Put the wall clock of its processes, now and later, forward or back."""
        (self.folder / "clock").write_bytes(struct.pack("d", seconds))

    def fill_disk(self) -> None:
        """Leave no byte of its disk."""
        with (self.folder / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def unmount(self) -> None:
        """Take its disk away."""
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def free_disk(self) -> None:
        """Take away what filled it."""
        (self.folder / "filler").unlink(missing_ok=True)


class Fleet:
    """The machines of a run; `poll` hears what they say, and keeps their processes alive. A context manager that ends all.

    Arguments:
        folder: for everything.
        network: with a machine for the Shepherd and each Worker.
        workers: their names.
        settings: of the run's file.
        step_seconds: that a training step takes.
    """

    def __init__(
        self,
        folder: Path,
        network: Network,
        workers: list[str],
        settings: dict[str, Any],
        step_seconds: float,
    ) -> None:
        self.folder, self.network, self.workers = folder, network, workers
        self._step_seconds = step_seconds
        self._clock = built("clock.c", folder, "-shared", "-fPIC")
        self.machines = {name: Machine(name, folder / name) for name in (SHEPHERD, *workers)}
        self.rounds: list[tuple[float, Record]] = []
        self.ended: list[str] = []  # without being killed
        for machine in self.machines.values():
            small_disk(machine.folder, DISK_MEGABYTES)
            machine.shift_clock(0.0)
            for inner in ("temporary", "cache"):
                (machine.folder / inner).mkdir()
        write_model(folder)
        files = {"model": "loss.pcp", "weights": "weights.safetensors", "data": "samples.npz"}
        settings = {name: str(folder / file) for name, file in files.items()} | settings
        (folder / "run.toml").write_text(
            "".join(f"{name} = {json.dumps(each)}\n" for name, each in settings.items())
        )
        self.parameter_bytes = (folder / "weights.safetensors").stat().st_size
        self._address = f"{network.address(SHEPHERD)}:7433"

    @property
    def run(self) -> Path:
        """The run's folder, on the Shepherd's disk."""
        return self.machines[SHEPHERD].folder / "run"

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        for machine in self.machines.values():
            machine.unmount()

    def work_of(self, name: str) -> list[float]:
        """When something was heard of a machine's work; see `Machine`."""
        return self.machines[name].seen

    def start(self, limit: float) -> None:
        """Start all processes, and wait until a round is merged."""
        self._start(SHEPHERD)
        self.wait(lambda: bool(self.machines[SHEPHERD].ready), limit, "the Shepherd listens")
        for worker in self.workers:
            Authority.load(self.run / "keys").issue(worker).save_bundle(self.folder / f"{worker}.pem")
            self._start(worker)
        self.wait(lambda: len(self.rounds) >= 2, limit, "two rounds are merged")

    def wait(self, condition: Any, limit: float, what: str) -> None:
        """Hear what is said until something holds.

        Raises:
            SystemExit: it does not within the limit, in seconds.
        """
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"within {limit:g} s it did not come to pass that {what}\n{self.explain()}")
            time.sleep(0.01)
            self.poll()

    def explain(self) -> str:
        """The last that every process wrote."""
        return "\n".join(f"{m.name}: {m.process.explain()}" for m in self.machines.values() if m.process)

    def poll(self) -> None:
        """Hear what was said, and start again what ended."""
        for machine in self.machines.values():
            process = machine.process
            if process is None:
                continue
            self._hear(machine, process)
            if process.code is not None:
                process.kill()
                if process.code != -signal.SIGKILL:
                    self.ended.append(
                        f"{machine.name} with {process.code}: {process.explain().strip().rpartition(chr(10))[2]}"
                    )
                time.sleep(RESTART_SECONDS)
                self._start(machine.name)

    def kill(self, name: str) -> None:
        """End a machine's process at once; `poll` starts another."""
        process = self.machines[name].process
        assert process is not None
        process.kill()

    def end(self) -> None:
        """End every process, and start none."""
        for machine in self.machines.values():
            if machine.process is not None:
                machine.process.kill()
                self._hear(machine, machine.process)
                machine.process = None

    def _hear(self, machine: Machine, process: Process) -> None:
        for record in process.read():
            now = time.monotonic()
            if machine.name == SHEPHERD:
                self._hear_shepherd(machine, record, now)
            elif record.get("reason") == "ready" and len(machine.ready) < machine.started:
                machine.ready.append(now)
        with process.errors.open("rb") as file:
            file.seek(machine.position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                machine.position += len(line)
                _, step, words = line.partition(b": step ")
                if step:
                    machine.steps.append(float(words.split()[0]))

    def _hear_shepherd(self, machine: Machine, record: Record, now: float) -> None:
        if record.get("event") == "listening":
            machine.ready.append(now)
        if record.get("lease") or record.get("updates") or "round" in record:
            machine.seen.append(now)
            if worker := self.machines.get(str(record.get("worker"))):
                worker.seen.append(now)
        if "round" in record:
            self.rounds.append((now, record))

    def _start(self, name: str) -> None:
        machine = self.machines[name]
        environment = {
            "LD_PRELOAD": str(self._clock),
            "BENCHMARK_CLOCK": str(machine.folder / "clock"),
            "TMPDIR": str(machine.folder / "temporary"),
            "PCP_CACHE_DIR": str(machine.folder / "cache"),
            "PCP_STEP_SECONDS": str(self._step_seconds),
        }
        if name == SHEPHERD:
            given = (
                [str(self.run)]
                if self.run.exists()
                else [str(self.folder / "run.toml"), "--run", str(self.run)]
            )
            words = ["pcp", "shepherd", *given, "--listen", self._address, "--json"]
        else:
            words = ["benchmarks.distributed.machines.worker", "--connect", self._address, "--json"]
            words += ["--key", str(self.folder / f"{name}.pem"), "--folder", str(machine.folder / "blobs")]
        machine.position = 0
        machine.started += 1
        said = self.folder / "said"
        said.mkdir(exist_ok=True)
        machine.process = Process(
            self.network.on(name), words, said, f"{name}-{machine.started}", environment
        )


def network_of(options: Any, folder: Path) -> Network:
    """The Shepherd's line and those of the Workers."""
    lines = {SHEPHERD: Line(10e6 * options.worker_mbit, 10e6 * options.worker_mbit)}
    lines |= {
        f"worker-{n}": Line(1e6 * options.worker_mbit, 1e6 * options.worker_mbit)
        for n in range(options.workers)
    }
    return Network(lines, folder, options.round_trip_ms / 1e3, options.loss, seed=options.seed)


def write_model(folder: Path) -> None:
    """Files of a network that learns a function of points."""
    rng = np.random.default_rng(0)
    shapes = {"hidden": (FEATURES, WIDTH), "middle": (WIDTH, WIDTH), "out": (WIDTH,)}
    weights = {
        name: (shape[0] ** -0.5 * rng.standard_normal(shape)).astype("f4") for name, shape in shapes.items()
    }

    def loss(weights: Any, x: Any, y: Any) -> Any:
        inner = pcp.tanh(pcp.tanh(x @ weights["hidden"]) @ weights["middle"])
        return ((inner @ weights["out"] - y) ** 2).mean()

    program = pcp.trace(loss, weights, pcp.spec((BATCH, FEATURES), "f32"), pcp.spec((BATCH,), "f32"))
    program.save(folder / "loss.pcp")
    with (folder / "weights.safetensors").open("wb") as file:
        write_arrays(file, weights)
    x = rng.standard_normal((4096, FEATURES)).astype("f4")
    np.savez(folder / "samples.npz", x=x, y=np.sin(x.sum(1)))
