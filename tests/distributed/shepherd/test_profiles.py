"""What workers measured, kept for those who come later."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.shepherd.scripted import Run, Worker

from pcp.distributed.messages import PROTOCOL_VERSION, Hello, Profile, SiteMeasurement, Welcome
from pcp.distributed.shepherd import profiles
from pcp.distributed.shepherd.profiles import CHOSEN_LETTERS, Profiles
from pcp.distributed.wire import connect

REGION = "a" * 64
WELCOME = Welcome(1, 1, "run", 1.0, "{}")


def said(ratio: float, kernel: str = "k@1") -> Profile:
    return Profile("path 0123", (SiteMeasurement(REGION, kernel, ratio),))


def test_newcomers_are_told_what_those_of_like_hardware_said() -> None:
    known = Profiles()
    for worker, hardware, ratio in (
        ("a", "epyc", 0.5),
        ("b", "epyc", 0.7),
        ("c", "epyc", 0.6),
        ("d", "arm", 9.0),
    ):
        known.joined(worker, hardware)
        record = known.received(worker, said(ratio))
        assert record == {"event": "worker", "worker": worker, "planned": "path 0123"}
    for worker, hardware in (("e", "epyc"), ("f", "arm"), ("g", "xeon"), ("h", "")):
        known.joined(worker, hardware)
    assert known.offered("e", WELCOME).profile == said(0.6).rows
    assert known.offered("f", WELCOME).profile == said(9.0).rows
    assert known.offered("g", WELCOME) == known.offered("h", WELCOME) == WELCOME
    known.received("b", said(0.1))
    assert known.offered("e", WELCOME).profile == said(0.5).rows, "a worker's last word counts"


def test_what_is_no_report_is_refused_and_changes_nothing() -> None:
    known = Profiles()
    known.joined("a", "epyc")
    known.received("a", said(0.5))
    for ratio, kernel in ((math.nan, "k@1"), (0.5, "x" * 1000), (-1.0, "k@1")):
        record = known.received("a", said(ratio, kernel))
        assert record["event"] in ("trouble", "profile")
    assert known.refused["a"] == 3
    assert known.offered("a", WELCOME).profile == said(0.5).rows
    flood = Profile("x" * 10**5, said(0.5).rows * 10**4)
    assert known.received("a", flood)["event"] == "profile"
    assert len(known.received("a", Profile("x" * 10**5, ()))["planned"]) == CHOSEN_LETTERS


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "HARDWARE_KEPT", 2)
    known = Profiles()
    for number in range(100):
        known.joined(f"w{number}", f"h{number % 5}")
        known.received(f"w{number}", said(0.5))
    kept = known._reports
    assert {hardware: len(workers) for hardware, workers in kept.items()} == {"h0": 16, "h1": 16}
    monkeypatch.setattr(profiles, "WORKERS_KEPT", 0)
    assert known.received("w0", said(0.1))["planned"] == "path 0123", "who is kept may say something else"


def test_a_profile_goes_from_one_worker_to_the_next(tmp_path: Path) -> None:
    run = Run(tmp_path)

    async def connected(name: str, hardware: str) -> Any:
        hello = Hello(PROTOCOL_VERSION, name, f"process of {name:>5}".encode(), ("cpu:0",), 1 << 30, hardware)
        return await connect(run.address, run.authority.issue(name), hello)

    async def script(_: Worker) -> None:
        async with await connected("bob", "epyc") as bob:
            assert bob.answer.profile == ()
            bob.post(said(0.25))
            while not any(record.get("planned") for record in run.records):
                await asyncio.sleep(0.01)
            for name, hardware, told in (("eve", "epyc", said(0.25).rows), ("joe", "arm", ())):
                async with await connected(name, hardware) as newcomer:
                    assert newcomer.answer.profile == told
        shepherd.stop()

    shepherd = run.shepherd()
    assert not run.drive(script, shepherd)
    assert {"event": "worker", "worker": "bob", "planned": "path 0123"} in run.records
