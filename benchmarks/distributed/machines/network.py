"""Machines in network namespaces, joined by lines; every byte that passes is counted by the emulator, outside of PCP."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.distributed.machines.isolation import built

_NETWORK = "10.77.0"
_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"


@dataclass(frozen=True, slots=True)
class Line:
    """A machine's line, in bits a second; 0: no limit."""

    up: float = 0.0
    down: float = 0.0


@dataclass(frozen=True, slots=True)
class Count:
    """What passed a machine's line: IP packets, with all headers.

    Arguments:
        sent, received: bytes that the machine sent, and that reached it.
        packets_sent, packets_received: the same in packets.
        lost: packets lost on the way from the machine at random, or by a cut.
        dropped: packets that found a queue full.
    """

    sent: int
    packets_sent: int
    received: int
    packets_received: int
    lost: int
    dropped: int

    def __sub__(self, earlier: "Count") -> "Count":
        return Count(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


class Network:
    """Machines with a line each; a context manager that ends them.

    Arguments:
        machines: their lines, by name.
        folder: where the emulator is built.
        round_trip: seconds between any two.
        loss: share of the packets that are lost, each way.
        congestion: the control of TCP, such as reno or bbr; empty: what this system has chosen.
        seed: of the losses.
    """

    def __init__(
        self,
        machines: Mapping[str, Line],
        folder: Path,
        round_trip: float,
        loss: float,
        congestion: str = "",
        seed: int = 0,
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(machines)}
        self._machines, self._delay, self._loss, self._seed = machines, round_trip / 2, loss, seed
        self._congestion = congestion
        self._program = built("line.c", folder)
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Network":
        begin = [str(self._program), str(self._seed), str(1e6 * self._delay), str(self._loss)]
        for name, line in self._machines.items():
            begin += [f"line{self._numbers[name]}", self.address(name), f"{line.up}", f"{line.down}"]
        self._emulator = subprocess.Popen(
            begin, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._heard()
        for name, number in self._numbers.items():
            # It says a line once it is in a namespace of its own.
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._holders[name] = holder
            assert holder.stdout is not None
            holder.stdout.readline()
            device = f"line{number}"
            _run(["ip", "link", "set", device, "netns", str(holder.pid)])
            for words in (
                ["ip", "address", "add", f"{self.address(name)}/24", "dev", device],
                ["ip", "link", "set", device, "mtu", "1500", "txqueuelen", "5000", "up"],
                ["ip", "link", "set", "lo", "up"],
                *([["sh", "-c", f"echo {self._congestion} > {_CONTROL}"]] if self._congestion else []),
            ):
                _run([*self.on(name), *words])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emulator.kill()
        self._emulator.wait()
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    @property
    def congestion(self) -> str:
        """The control of TCP."""
        return self._congestion or Path(_CONTROL).read_text().strip()

    @property
    def emulator(self) -> int:
        """The number of the emulator's process."""
        return self._emulator.pid

    def address(self, name: str) -> str:
        """The IPv4 address of a machine."""
        return f"{_NETWORK}.{self._numbers[name] + 1}"

    def on(self, name: str) -> list[str]:
        """Words before a command that runs it on a machine."""
        return ["nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net"]

    def cut(self, name: str, direction: str, lost: bool) -> None:
        """Lose everything that a machine sends (`up`) or gets (`down`), or no longer."""
        self._ask(f"cut {self._numbers[name]} {direction} {int(lost)}")

    def counts(self) -> dict[str, Count]:
        """What passed since the beginning, by machine."""
        numbers = list(map(int, self._ask("count").split()))
        width = len(Count.__slots__)
        return {name: Count(*numbers[width * at : width * (at + 1)]) for name, at in self._numbers.items()}

    def _ask(self, command: str) -> str:
        assert self._emulator.stdin is not None
        self._emulator.stdin.write(command + "\n")
        self._emulator.stdin.flush()
        return self._heard()

    def _heard(self) -> str:
        assert self._emulator.stdout is not None
        answer = self._emulator.stdout.readline()
        if not answer:
            raise SystemExit(f"the emulator of the lines ended with {self._emulator.wait()}")
        return str(answer)


def _run(words: Sequence[str]) -> None:
    subprocess.run(words, check=True)
