"""How surely and how soon audits find a worker that cheats: the coordinator itself, among simulated workers.

python -m benchmarks.distributed.audits.auditing [--runs 40] [--picture audits.png]
"""

import argparse
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.distributed.audits.cheating import (
    CHEATS,
    PAYLOAD_BYTES,
    STATE_BYTES,
    TOKENS,
    Inner,
    Worker,
    digest,
)
from pcp.distributed.algorithms import Algorithm, DiLoCo
from pcp.distributed.coordinator import Coordinator, RunConfig, check_books, effects, encode, events
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.messages import PROTOCOL_VERSION, Blob, Hello, Repeated, Update

RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
WORKERS, ROUNDS = 8, 20
CHEAT = "worker 1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Arguments:
        barred: names that were kept out, and why.
        leases: how many updates of the worker that cheats were admitted before it was kept out, or in all.
        verdicts: of every audit.
    """

    barred: dict[str, str]
    leases: int
    verdicts: tuple[effects.AuditEnded, ...]


class AuditedRun:
    """A run of some workers, one of which may cheat, with everything in memory and nothing going wrong by itself.

    Arguments:
        cheat: what the first worker does.
        seed: of the order in which workers get on.
        workers: how many there are.
        rounds: how often each worker trains.
        algorithm: how pushes are merged.
        liars: workers that contradict whatever they are to repeat.
        accidents: how often a worker's connection breaks when it is its turn.
    """

    def __init__(
        self,
        cheat: str,
        policy: AuditPolicy,
        seed: int,
        workers: int = WORKERS,
        rounds: int = ROUNDS,
        algorithm: Algorithm | None = None,
        liars: frozenset[str] = frozenset(),
        accidents: float = 0.0,
    ) -> None:
        algorithm = DiLoCo(inner_steps=8) if algorithm is None else algorithm
        self.config = RunConfig(
            run_id="audited",
            batches=workers * rounds * algorithm.inner_steps,
            workers=workers,
            step_budgets=False,
            algorithm=algorithm,
            tokens_per_batch=TOKENS,
            audits=policy,
            checkpoint_every=1000,
        )
        self.random = Random(seed)
        self.verdicts: list[effects.AuditEnded] = []
        self.log: list[bytes] = []
        self.cheated = 0
        self.now = 0.0
        self._liars, self._accidents = liars, accidents
        self._events: deque[events.Event] = deque()
        self._payloads: list[Blob] = []
        self._connections = 0
        parameters = tuple(Blob(digest("first", each), 40) for each in range(algorithm.fragments))
        self.coordinator = Coordinator.create(self.config, parameters, (None,) * algorithm.fragments)
        self.workers: dict[int, Worker] = {}
        self.do(events.Started(0.0))
        states: dict[bytes, Inner] = {}
        for number in range(1, workers + 1):
            does = cheat if number == 1 else "honest"
            self._connect(Worker(f"worker {number}", 0, policy, does, self._payloads, states))

    def _connect(self, worker: Worker) -> None:
        self._connections += 1
        worker.connection = self._connections
        worker.inbox.clear()
        self.workers[worker.connection] = worker
        incarnation = bytes([worker.incarnation])
        self.do(
            events.MemberJoined(
                self.now, worker.connection, Hello(PROTOCOL_VERSION, worker.name, incarnation, (), 1)
            )
        )

    def _accident(self, worker: Worker) -> None:
        """Break a connection; the process, or a new one, comes back."""
        del self.workers[worker.connection]
        self.do(events.ConnectionLost(self.now, worker.connection))
        if self.random.random() < 0.3:
            worker.begin_anew()
        self._connect(worker)

    def do(self, event: events.Event) -> None:
        """Feed an event and all that follows from it at once."""
        self._events.append(event)
        while self._events:
            for effect in self.coordinator.handle(self._events.popleft()):
                self._perform(effect)
            check_books(self.coordinator.state)

    def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Append(record):
                self.log.append(encode(record))
            case effects.Send(connection, message) if connection in self.workers:
                self.workers[connection].inbox.append(message)
            case effects.Close(connection):
                self.workers.pop(connection, None)
            case effects.RunOuterStep(round, fragment):
                merged = Blob(digest("merged", round, fragment), 40)
                self._events.append(events.OuterStepDone(self.now, round, merged, None, None))
            case effects.WriteCheckpoint(version):
                self._events.append(events.CheckpointDone(self.now, version))
            case effects.CompareStates(audit):
                # Blobs are compared only where they differ, and no two digests are alike.
                self._events.append(events.StatesCompared(self.now, audit, 1.0))
            case effects.Report(effects.AuditEnded() as ended):
                self.verdicts.append(ended)

    def run(self) -> Outcome:
        """Go on until the run is complete."""
        state = self.coordinator.state
        while not state.finished:
            busy = [worker for worker in self.workers.values() if worker.inbox]
            if not busy:
                self.now += self.config.heartbeat_seconds
                for member in state.members.values():
                    member.last_heard = self.now
                self.do(events.Tick(self.now))
                continue
            self._turn(self.random.choice(busy))
        return Outcome(dict(state.run.barred), self.cheated, tuple(self.verdicts))

    def _turn(self, worker: Worker) -> None:
        if self.random.random() < self._accidents:
            self._accident(worker)
            return
        connection = worker.connection
        for said in worker.hear():
            if connection not in self.workers:
                return
            if isinstance(said, Blob):
                if worker.cheat == "honest" and said.size == PAYLOAD_BYTES:
                    self._payloads[:] = [said]
                self.do(events.BlobStored(self.now, said))
                continue
            self.cheated += worker.name == CHEAT and isinstance(said, Update)
            if worker.name in self._liars and isinstance(said, Repeated):
                said = replace(said, after=Blob(digest("lie", said.after), STATE_BYTES))
            self.do(events.MessageReceived(self.now, connection, said))


def study(cheat: str, rate: float, runs: int) -> tuple[float, float]:
    """The share of runs in which the worker is found, and the mean number of its leases until then.

    Raises:
        AssertionError: an honest worker was kept out.
    """
    found, leases = 0, 0
    for seed in range(runs):
        outcome = AuditedRun(cheat, AuditPolicy(rate, seed=seed), seed).run()
        honest = {name for name in outcome.barred if cheat == "honest" or name != CHEAT}
        assert not honest, f"kept out though honest: {outcome.barred}"
        found += bool(outcome.barred)
        leases += outcome.leases
    return found / runs, leases / runs


def main() -> None:
    """Print a table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--picture", type=Path)
    settings = parser.parse_args()
    results: dict[str, list[tuple[float, float]]] = {}
    print(f"| of {ROUNDS} leases | " + " | ".join(f"{rate:g}" for rate in RATES) + " |")
    print("|---|" + "---|" * len(RATES))
    for cheat in CHEATS:
        results[cheat] = [study(cheat, rate, settings.runs) for rate in RATES]
        cells = (f"{100 * found:.0f} % ({leases:.1f})" for found, leases in results[cheat])
        print(f"| {cheat} | " + " | ".join(cells) + " |", flush=True)
    if settings.picture:
        draw(results, settings.picture)


def draw(results: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Draw how often each cheat is found, against the audit rate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for cheat, row in results.items():
        axes.plot(RATES, [found for found, _ in row], marker="o", label=cheat)
    axes.set(
        xscale="log",
        xlabel="share of the leases that are audited",
        ylabel=f"found within {ROUNDS} leases",
        ylim=(-0.03, 1.03),
    )
    axes.set_xticks(RATES, [f"{rate:g}" for rate in RATES])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
