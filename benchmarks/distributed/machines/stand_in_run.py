"""A run of real processes whose training step alone is a stand-in, over lines or on loopback: what it takes and moves."""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.distributed.machines.network import Count, Network
from benchmarks.distributed.machines.process import Process, processor_seconds, resident_bytes
from pcp.distributed.wire import Authority

POLL_SECONDS = 0.2
SHEPHERD = "shepherd"


@dataclass(frozen=True)
class Way:
    """A way to train.

    Arguments:
        settings: of the run's file.
        wanted: share of the time in steps that the project wants of it; None: it is a control.
    """

    settings: dict[str, Any]
    wanted: float | None = None


@dataclass
class Steps:
    """What a Worker's steps said.

    Arguments:
        ends: when each ended.
        processor: processor seconds of the process until then.
    """

    ends: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def share(self, first: int, last: int, seconds: float) -> float:
        """Share of the time in steps, from the end of one to the end of another."""
        return (last - first) * seconds / (self.ends[last - 1] - self.ends[first - 1])

    def blocked(self, first: int, last: int, seconds: float) -> tuple[float, float]:
        """Seconds between steps, of them those of the process's processor time."""
        wall = self.ends[last - 1] - self.ends[first - 1] - (last - first) * seconds
        return wall, self.processor[last - 1] - self.processor[first - 1]


class Run:
    """One way over one network.

    Arguments:
        options: of the command.
        name: of the way.
        way: itself.
        folder: for its files.
        model: file of the loss, with weights and data beside it.
        network: where it runs; None on loopback.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        name: str,
        way: Way,
        folder: Path,
        model: Path,
        network: Network | None,
    ) -> None:
        self.options, self.name, self.way, self.folder, self.model = options, name, way, folder, model
        self.network = network
        self.workers = [f"worker-{number}" for number in range(options.workers)]
        self.steps = {worker: Steps() for worker in self.workers}
        self.positions = dict.fromkeys(self.workers, 0)  # in what each wrote
        self.is_parallel = way.settings["algorithm"] == "data-parallel"
        # Data parallel training merges after each step, so a few of them say what each takes.
        self.cycle = 1 if self.is_parallel else options.inner_steps
        self.warm: int = 1 if self.is_parallel else options.warm
        self.rounds: int = options.parallel_steps if self.is_parallel else options.rounds
        # All that a round moves has arrived a step before its end, so that nothing is on the way when bytes are counted.
        early = 0 if self.is_parallel else 1
        self.begin, self.end = self.warm * self.cycle - early, (self.warm + self.rounds) * self.cycle - early
        self.total = (self.warm + self.rounds + 1) * self.cycle

    def measure(self) -> dict[str, Any]:
        """Run it, and return what was seen."""
        processes: dict[str, Process] = {}
        try:
            processes[SHEPHERD] = self._start_shepherd()
            address = self._address(processes[SHEPHERD])
            for worker in self.workers:
                processes[worker] = self._start_worker(worker, address)
            first = self._wait(processes, self.begin)
            last = self._wait(processes, self.end)
            memory = sum(resident_bytes(each.number) for each in processes.values())
        finally:
            for process in processes.values():
                process.kill()
        return self._seen(first, last) | {"memory_gb": memory / 1e9}

    def _on(self, machine: str) -> list[str]:
        return [] if self.network is None else self.network.on(machine)

    def _start_shepherd(self) -> Process:
        plan, run = self.folder / "run.toml", self.folder / "run"
        settings = {
            "model": str(self.model / "loss.pcp"),
            "weights": str(self.model / "weights.safetensors"),
            "data": str(self.model / "samples.npz"),
            "workers": self.options.workers,
            "steps": self.total,
            "evaluate_every": 0,
            "checkpoint_every": 0,
            "warmup_steps": 1,
            "shares": "equal",
            "merge": "mean",
        } | self.way.settings
        if not self.is_parallel:
            settings["inner_steps"] = self.options.inner_steps
        plan.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        host = "127.0.0.1" if self.network is None else self.network.address(SHEPHERD)
        words = ["pcp", "shepherd", str(plan), "--folder", str(run), "--listen", f"{host}:0", "--json"]
        return Process(self._on(SHEPHERD), words, self.folder, SHEPHERD)

    def _start_worker(self, worker: str, address: str) -> Process:
        key = self.folder / f"{worker}.pem"
        Authority.load(self.folder / "run" / "keys").issue(worker).save_bundle(key)
        words = ["benchmarks.distributed.machines.worker", "--connect", address, "--key", str(key)]
        words += ["--folder", str(self.folder / worker), "--json"]
        steps = {
            "PCP_STEP_SECONDS": str(self.options.step_seconds),
            "PCP_STEP_STANDS_IN": str(self.options.inner_steps),
        }
        return Process(self._on(worker), words, self.folder, worker, steps)

    def _address(self, shepherd: Process) -> str:
        deadline = time.monotonic() + self.options.limit
        while time.monotonic() < deadline and shepherd.code is None:
            for record in shepherd.read():
                if record.get("event") == "listening":
                    return str(record["address"])
            time.sleep(POLL_SECONDS)
        raise SystemExit(f"the Shepherd does not listen: {shepherd.explain()}")

    def _wait(self, processes: dict[str, Process], steps: int) -> dict[str, Any]:
        """Wait until every Worker has done so many steps; returns what was taken until then."""
        deadline = time.monotonic() + self.options.limit
        while any(len(each.ends) < steps for each in self.steps.values()):
            if time.monotonic() > deadline or any(each.code for each in processes.values()):
                done = {worker: len(each.ends) for worker, each in self.steps.items()}
                said = "\n".join(f"{name}: {each.explain()}" for name, each in processes.items())
                raise SystemExit(
                    f"{self.name}: {steps} steps are not done in {self.options.limit} s: {done}\n{said}"
                )
            time.sleep(POLL_SECONDS)
            for worker in self.workers:
                self._read(worker, processes[worker])
        taken = {name: processor_seconds(each.number) for name, each in processes.items()}
        if self.network is not None:
            taken["lines"] = processor_seconds(self.network.emulator)
        counts = {} if self.network is None else self.network.counts()
        return {"time": time.monotonic(), "processor": taken, "counts": counts, "steps": self._done()}

    def _done(self) -> float:
        return statistics.mean(len(each.ends) for each in self.steps.values())

    def _read(self, worker: str, process: Process) -> None:
        with process.errors.open("rb") as file:
            file.seek(self.positions[worker])
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.positions[worker] += len(line)
                _, step, words = line.partition(b": step ")
                if step:
                    end, processor = map(float, words.split())
                    self.steps[worker].ends.append(end)
                    self.steps[worker].processor.append(processor)

    def _seen(self, first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
        begin, end, seconds = self.begin, self.end, self.options.step_seconds
        shares = [each.share(begin, end, seconds) for each in self.steps.values()]
        blocked = [each.blocked(begin, end, seconds) for each in self.steps.values()]
        wall = last["time"] - first["time"]
        processor = {name: last["processor"][name] - first["processor"][name] for name in last["processor"]}
        workers = sum(processor[worker] for worker in self.workers)
        row = {
            "way": self.name,
            "lines": self.network is not None,
            "utilisation": statistics.mean(shares),
            "worst": min(shares),
            "wanted": self.way.wanted,
            "rounds": self.rounds,
            "seconds_a_round": (end - begin) * seconds / statistics.mean(shares) / self.rounds,
            "blocked_seconds_a_round": statistics.mean(wall for wall, _ in blocked) / self.rounds,
            "program_processor_seconds_a_round": statistics.mean(used for _, used in blocked) / self.rounds,
            "cores_of_workers": workers / wall,
            "cores_of_shepherd": processor[SHEPHERD] / wall,
        }
        if self.network is not None:
            steps = last["steps"] - first["steps"]
            of = {worker: last["counts"][worker] - first["counts"][worker] for worker in self.workers}
            row |= {
                "congestion": self.network.congestion,
                "cores_of_lines": processor["lines"] / wall,
                **_bytes(of, steps),
            }
        return row


def _bytes(of: dict[str, Count], steps: float) -> dict[str, float]:
    """Bytes of a Worker and step, each way; and which share of the packets did not arrive."""
    workers = len(of)
    packets = sum(each.packets_sent + each.packets_received + each.dropped for each in of.values())
    return {
        "bytes_up_a_step": sum(each.sent for each in of.values()) / workers / steps,
        "bytes_down_a_step": sum(each.received for each in of.values()) / workers / steps,
        "lost": sum(each.lost for each in of.values()) / packets,
        "dropped": sum(each.dropped for each in of.values()) / packets,
    }
