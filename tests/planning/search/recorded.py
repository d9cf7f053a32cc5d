"""A search over recorded measurements: nothing runs, so its choice depends on the rows and the strategy alone.

    python -m tests.planning.search.recorded write

measures three ways to compute sines on this machine, by a real search of a real Bench, and writes what it asked and was told to
`recorded_search.jsonl`. Replaying answers the same requests from there.
"""

import contextlib
import functools
import json
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.planning.fake_bench import _everywhere

import pcp
from pcp.backends import Target
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Family, Kernel, register_kernel
from pcp.kernels.artifact import StableHLO
from pcp.planning import chosen, conditions
from pcp.planning.chosen import searched
from pcp.planning.conditions import Conditions
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.profile.rows import line_of, row_of
from pcp.planning.search.found import Found
from pcp.planning.search.loop import answered
from pcp.planning.search.strategy import Strategy
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor, current_builder

FILE = Path(__file__).with_name("recorded_search.jsonl")
TOLERANCE = 1e-4


def program() -> Program:
    """A program with two classes of two sines each."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return pcp.sin(pcp.sin(x) * 2.0), pcp.sin(pcp.sin(y) * 2.0)

    return pcp.trace(function, pcp.spec((256, 256), "f64"), pcp.spec((128, 256), "f64"))


def _in(name: str) -> Callable[[ir.Operation], list[Tensor]]:
    """The sine in a narrower type."""
    return lambda op: [pcp.sin(Tensor(op.operands[0], current_builder()).astype(name)).astype("f64")]


def add_sines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register two kernels for sines, for one test."""
    monkeypatch.setitem(FAMILIES, "sine", Family("sine", "sines", lambda op: op.name == "stablehlo.sine"))
    for name in ("f32", "bf16"):
        register_kernel(
            Kernel(
                f"sine.{name}", "for tests", _everywhere, StableHLO(_in(name)), effect=Effect.lowers_precision
            )
        )


class NotRecorded(Exception):
    """A request that the recorded search did not make."""


class Recorder:
    """A Bench that keeps what it is asked and what it answers."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.rows: list[Measurement] = []

    def begin(self, request: Request) -> None:
        """Begin with what will be measured."""
        self._bench.begin(request)

    def measure(self, request: Request) -> Measurement:
        """Make one measurement."""
        self.rows.append(self._bench.measure(request))
        return self.rows[-1]


class Replay:
    """Answers requests from recorded rows, those of one path of one program in the order in which they were measured."""

    def __init__(self, rows: list[Measurement]) -> None:
        self._left: dict[tuple[str, str], deque[Measurement]] = defaultdict(deque)
        for row in rows:
            self._left[row.subject, row.path].append(row)
        self.asked: list[tuple[str, str]] = []

    def measure(self, request: Request) -> Measurement:
        """The next recorded row for a request."""
        key = request.subject.digest, request.path
        self.asked.append(key)
        if not self._left[key]:
            raise NotRecorded(
                f"{request.path} of program {key[0][:12]} was not measured in {FILE.name} as often; if searches are meant "
                "to ask something else now, record again: python -m tests.planning.search.recorded write"
            )
        return self._left[key].popleft()


def recorded() -> tuple[list[Measurement], list[str]]:
    """The recorded rows, and the kernels that were chosen then."""
    *rows, last = FILE.read_text(encoding="utf-8").splitlines()
    found = [row_of(line) for line in rows]
    return [row for row in found if isinstance(row, Measurement)], json.loads(last)["kernels"]


def search_by(
    measurer: object,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    strategy: Strategy,
    budget: float = 600.0,
) -> Found:
    """A search with nothing known, that measures by something."""

    @contextlib.contextmanager
    def start() -> Iterator[object]:
        yield measurer

    monkeypatch.setattr(conditions, "Bench", start)
    monkeypatch.setattr(chosen, "difference_here", lambda *_: None)
    target = Target.of("cpu:0")
    wanted = Conditions(target, target.capacity, folder / "profile.sqlite", budget, strategy=strategy)
    with conditions.evidence_of(wanted) as evidence:
        return answered(functools.partial(searched, program(), TOLERANCE, wanted, ()), evidence)[0]


def kernels(found: Found) -> list[str]:
    """The kernels that a search chose, one for each site."""
    return sorted(choice.kernel for choice in found.path.choices.values())


def write() -> None:
    """Record a search."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder, Bench() as bench:
        add_sines(patch)
        recorder = Recorder(bench)
        found = search_by(recorder, Path(folder), patch, Strategy())
    lines = [line_of(row) for row in recorder.rows]
    FILE.write_text("\n".join([*lines, json.dumps({"kernels": kernels(found)})]) + "\n", encoding="utf-8")
    print(f"{len(lines)} measurements and {kernels(found)} written to {FILE}")


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    write()
