"""A real Shepherd with hundreds of real connections on this machine: how late are heartbeats, and what does it cost?

    python -m benchmarks.distributed.fleets.connections --workers 500

The Shepherd is `pcp.distributed.shepherd.process.Shepherd` with a tiny GPT-2, in a process of its own; the workers are
stand-ins (`stand_ins.py`) in another: each has a control connection and two bulk connections, fetches data and
parameters, sleeps instead of training, and pushes. Ends its processes after `--seconds` at the latest.
"""

import argparse
import asyncio
import functools
import multiprocessing
import os
import queue
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.distributed.fleets.hostile import percentiles
from benchmarks.distributed.fleets.stand_ins import Seen, Task, note_lateness, work
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.wire import Authority
from pcp.models.published import gpt2_config
from pcp.training.data.token_file import write_token_file
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from pcp.training.run_folder import RunFolder

MODEL = gpt2_config(layers=1, heads=2, width=32, context=16, vocabulary=65, bias=False)
INNER_STEPS = 4
QUIET_SECONDS = 5


def shepherd(pipe: Connection, folder: Path, workers: int, rounds: int) -> None:
    """Serves a run in this process; says its port and what stand-ins need, then each record and what it held."""
    records: queue.SimpleQueue[Any] = queue.SimpleQueue()  # a full pipe must not hold up the loop

    def pass_on() -> None:
        for record in iter(records.get, None):
            pipe.send(record)

    passing = threading.Thread(target=pass_on)
    passing.start()
    config = TrainingConfig(
        steps=rounds * INNER_STEPS, inner_steps=INNER_STEPS, workers=workers, batch=1, warmup_steps=1
    )
    tokens = np.random.default_rng(1).integers(0, MODEL.vocabulary, 20_000).astype(np.uint16)
    recipe = DecoderRecipe(config, MODEL, write_token_file(folder / "tokens.bin", tokens, MODEL.vocabulary))
    authority = Authority.load(folder / "keys")
    credentials = authority.issue("shepherd", "shepherd")
    served = Shepherd(
        RunFolder(folder), recipe, credentials, authority.revocations, records.put, sign=authority.sign
    )
    elements = partition(recipe.parameters, 1).size(0)

    def ready(port: int) -> None:
        records.put({"port": port, "elements": elements, "tokens": recipe.tokens_per_step})

    late: list[float] = []

    async def serve() -> None:
        noting = asyncio.create_task(note_lateness(late))
        await served.run("127.0.0.1", 0, ready)
        noting.cancel()

    try:
        asyncio.run(serve())
        records.put({"complete": True, "late": late})
    finally:
        records.put(None)
        passing.join()


def held(process: int) -> tuple[float, int, int, float]:
    """Processor seconds, threads, descriptors and megabytes of a process."""
    statistics = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks = (int(statistics[11]) + int(statistics[12])) / os.sysconf("SC_CLK_TCK")
    megabytes = int(statistics[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return ticks, int(statistics[17]), len(os.listdir(f"/proc/{process}/fd")), megabytes


def quietest(samples: list[tuple[float, float]]) -> float:
    """The smallest share of a core over some seconds, from times and processor seconds."""
    shares = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier in samples
        for later in samples
        if QUIET_SECONDS <= later[0] - earlier[0] < QUIET_SECONDS + 1
    ]
    return min(shares, default=float("nan"))


def measure(folder: Path, workers: int, rounds: int, step_seconds: float, limit: float) -> None:
    """Runs a Shepherd and its stand-ins, and prints what they saw."""
    authority = Authority.create(folder / "keys")
    keys = [authority.issue(f"worker-{number}") for number in range(workers)]
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    ours, theirs = context.Pipe()
    serving = context.Process(target=shepherd, args=(there, folder, workers, rounds), daemon=True)
    working: Any = None
    deadline = time.monotonic() + limit
    refused: list[dict[str, Any]] = []
    samples: list[tuple[float, float]] = []
    most: tuple[float, ...] = (0, 0, 0.0)
    try:
        serving.start()
        facts = here.recv()
        address = f"127.0.0.1:{facts['port']}"
        task = Task(address, folder / "workers", facts["elements"], facts["tokens"], step_seconds, workers)
        working = context.Process(target=work, args=(theirs, task, keys), daemon=True)
        began = time.monotonic()
        working.start()
        complete = False
        while not complete and working.is_alive() and time.monotonic() < deadline:
            processor, *now = held(serving.pid or 0)
            samples.append((time.monotonic(), processor))
            most = tuple(map(max, most, now))
            while here.poll(0.25):
                record = here.recv()
                if "complete" in record:
                    complete = True
                    print(f"the Shepherd's loop was late by {percentiles(record['late'])}")
                refused += [record] if record.get("event") == "refused" else []
                if "round" in record:
                    print(
                        f"round {record['round']}: {record['contributions']} contributions, "
                        f"{record['live_workers']} workers, after {time.monotonic() - began:.1f} s"
                    )
        print(f"complete: {complete}; refused: {refused}")
        if ours.poll(10):
            tell(ours.recv(), workers, samples, most, time.monotonic() - began)
    finally:
        for process in (working, serving):
            if process is not None and process.is_alive():
                process.terminate()
                process.join(10)


def tell(
    seen: Seen, workers: int, samples: list[tuple[float, float]], most: tuple[float, ...], seconds: float
) -> None:
    """Prints what was seen."""
    for name in ("joins", "beats", "beats_while_all_train", "transfers", "late"):
        values = getattr(seen, name)
        print(f"{name} ({len(values)}): {percentiles(values) if values else 'none'}")
    print(
        f"pushes answered: {seen.leases}; control connections tried again: {seen.tries}; reconnects of bulk "
        f"connections: {seen.reconnects}; failures: {seen.failures[:3]}"
    )
    quiet = quietest(samples)
    print(
        f"the Shepherd: {samples[-1][1]:.1f} s of a core in {seconds:.0f} s; in its quietest {QUIET_SECONDS} s "
        f"{quiet:.1%} of one, {quiet / workers * 1e6:.0f} us for each worker and second"
    )
    print(f"at most {most[0]} threads, {most[1]} descriptors, {most[2]:.0f} MB")


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--step-seconds", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    run = functools.partial(
        measure,
        workers=options.workers,
        rounds=options.rounds,
        step_seconds=options.step_seconds,
        limit=options.seconds,
    )
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder))


if __name__ == "__main__":
    main()
