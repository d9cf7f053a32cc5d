"""A run of real processes whose training step alone is a stand-in, over lines or on loopback: what it takes and moves."""

import argparse
import json
import re
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.distributed.machines.network import Count, Network
from benchmarks.distributed.machines.process import Process, processor_seconds, resident_bytes
from pcp.distributed.compression import codec
from pcp.distributed.wire import Authority

POLL_SECONDS = 0.1
_LEASE = re.compile(r"\(([0-9.]+) ms of it outside of the steps; waited ([0-9.]+) s for fragments\)")
_OUTER_STEP = re.compile(r"the outer step of round \d+ took ([0-9.]+) ms")
SHEPHERD = "shepherd"


@dataclass(frozen=True)
class Way:
    """A way to train.

    Arguments:
        settings: of the run's file.
        wanted: share of the time in steps that the project wants of it; None: it is a control.
        rounds: that are measured, at most: those of a slow way are long, and one is like the other.
        on_loopback: whether it is measured without lines, too.
    """

    settings: dict[str, Any]
    wanted: float | None = None
    rounds: int = 1000
    on_loopback: bool = False


@dataclass
class Steps:
    """What a Worker's steps said.

    Arguments:
        ends: when each ended.
        processor: processor seconds of the process until then.
        leases: of each that ended, how many steps were done by then, and the seconds of it that were spent outside of
            the steps, and waiting for fragments to be merged and to arrive.
    """

    ends: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    leases: list[tuple[int, float, float]] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take a line that a Worker wrote, which may be of a step or of a lease."""
        _, step, words = line.partition(": step ")
        if step:
            end, processor = map(float, words.split())
            self.ends.append(end)
            self.processor.append(processor)
        elif found := _LEASE.search(line):
            self.leases.append((len(self.ends), float(found[1]) / 1e3, float(found[2])))

    def spent(self, first: int, last: int) -> tuple[float, float]:
        """Seconds outside of steps, and waiting for fragments, of the leases that ended between two steps."""
        within = [each for each in self.leases if first < each[0] <= last]
        return sum(outside for _, outside, _ in within), sum(waited for *_, waited in within)

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
        # Data parallel training merges after each step.
        self.is_parallel = way.settings["algorithm"] == "data-parallel"
        self.cycle = 1 if self.is_parallel else options.inner_steps
        self.warm, self.rounds = options.warm, min(options.rounds, way.rounds)
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
            took = [float(each) / 1e3 for each in _OUTER_STEP.findall(processes[SHEPHERD].errors.read_text())]
        finally:
            for process in processes.values():
                process.kill()
        return self._seen(first, last) | {
            "outer_step_seconds": statistics.median(took),
            "memory_gb": memory / 1e9,
        }

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
        words = ["pcp", "shepherd", str(plan), "--run", str(run), "--listen", f"{host}:0", "--json"]
        return Process(self._on(SHEPHERD), words, self.folder, SHEPHERD)

    def _start_worker(self, worker: str, address: str) -> Process:
        key = self.folder / f"{worker}.pem"
        Authority.load(self.folder / "run" / "keys").issue(worker).save_bundle(key)
        words = ["benchmarks.distributed.machines.worker", "--connect", address, "--key", str(key)]
        words += ["--folder", str(self.folder / worker), "--json"]
        steps = {
            "PCP_STEP_SECONDS": str(self.options.step_seconds),
            "PCP_STEP_STANDS_IN": str(self.cycle),
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
        """Wait until every Worker has done so many steps; returns what was taken, and moved by each, until then."""
        deadline, counts = time.monotonic() + self.options.limit, dict[str, Count]()
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
                if (
                    self.network is not None
                    and worker not in counts
                    and len(self.steps[worker].ends) >= steps
                ):
                    counts[worker] = self.network.counts()[worker]
        taken = {name: processor_seconds(each.number) for name, each in processes.items()}
        if self.network is not None:
            taken["lines"] = processor_seconds(self.network.emulator)
        return {"time": time.monotonic(), "processor": taken, "counts": counts}

    def _read(self, worker: str, process: Process) -> None:
        with process.errors.open("rb") as file:
            file.seek(self.positions[worker])
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.positions[worker] += len(line)
                self.steps[worker].read(line.decode())

    def _seen(self, first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
        begin, end, seconds = self.begin, self.end, self.options.step_seconds
        shares = [each.share(begin, end, seconds) for each in self.steps.values()]
        blocked = [each.blocked(begin, end, seconds) for each in self.steps.values()]
        spent = [each.spent(begin, end) for each in self.steps.values()]
        wall = last["time"] - first["time"]
        processor = {name: last["processor"][name] - first["processor"][name] for name in last["processor"]}
        workers = sum(processor[worker] for worker in self.workers)
        row: dict[str, Any] = {
            "way": self.name,
            "lines": self.network is not None,
            "utilisation": statistics.mean(shares),
            "worst": min(shares),
            "wanted": self.way.wanted,
            "rounds": self.rounds,
            "seconds_a_round": (end - begin) * seconds / statistics.mean(shares) / self.rounds,
            "blocked_seconds_a_round": statistics.mean(wall for wall, _ in blocked) / self.rounds,
            "waited_seconds_a_round": statistics.mean(waited for _, waited in spent) / self.rounds,
            "outside_seconds_a_round": statistics.mean(outside for outside, _ in spent) / self.rounds,
            "program_processor_seconds_a_round": statistics.mean(used for _, used in blocked) / self.rounds,
            "cores_of_workers": workers / wall,
            "cores_of_shepherd": processor[SHEPHERD] / wall,
        }
        if self.network is not None:
            of = {worker: last["counts"][worker] - first["counts"][worker] for worker in self.workers}
            row |= {
                "congestion": self.network.congestion,
                "cores_of_lines": processor["lines"] / wall,
                **_bytes(of, end - begin),
            }
            least = (
                codec(self.way.settings.get("upload", "f32")).payload_bytes(int(self.options.parameters))
                / self.cycle
            )
            if row["bytes_up_a_step"] < least:
                raise SystemExit(
                    f"{self.name}: {row['bytes_up_a_step']:.0f} bytes a step were sent, fewer than {least:.0f} of pushes"
                )
        return row


def _bytes(of: dict[str, Count], steps: int) -> dict[str, float]:
    """Bytes of a Worker and step, each way; and which share of the packets did not arrive."""
    workers = len(of)
    packets = sum(each.packets_sent + each.packets_received + each.dropped for each in of.values())
    return {
        "bytes_up_a_step": sum(each.sent for each in of.values()) / workers / steps,
        "bytes_down_a_step": sum(each.received for each in of.values()) / workers / steps,
        "lost": sum(each.lost for each in of.values()) / packets,
        "dropped": sum(each.dropped for each in of.values()) / packets,
    }
