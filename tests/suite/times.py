"""What every test takes in processor time, its child processes included: on a busy machine a clock on the wall says little."""

import json
import resource
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

OPTION = "--times"
_LOOP = 400_000


class Times:
    """Adds up what each file takes, in this process and in those of xdist, and writes it where the option says."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()
        self.work = {"": calibration()}
        self.ended: list[float] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Count a test, its fixtures included."""
        before = processor_seconds()
        try:
            return (yield)
        finally:
            name = item.nodeid.partition("::")[0]
            self.seconds[name] += processor_seconds() - before
            self.tests[name] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand on what was counted, or write it in the process that has it all."""
        counted = {"seconds": dict(self.seconds), "tests": dict(self.tests), "work": self.work[""]}
        counted["ended"] = time.time()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["times"] = counted
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        alone = max(self.ended, default=0.0) - min(self.ended, default=0.0)
        written = {**counted, "work": max(self.work.values()), "alone": alone}
        self.file.write_text(json.dumps(written, sort_keys=True, indent=1))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a process of xdist counted."""
        counted = getattr(node, "workeroutput", {}).get("times")
        if counted:
            self.seconds.update(counted["seconds"])
            self.tests.update(counted["tests"])
            self.work[node.gateway.id] = counted["work"]
            self.ended.append(counted["ended"])


def processor_seconds() -> float:
    """What this process and its ended children took until now."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def calibration() -> float:
    """Seconds of the processor for a fixed piece of work, the least of three: machines differ by a factor of two."""
    taken = []
    for _ in range(3):
        started, total = time.process_time(), 0
        for number in range(_LOOP):
            total += number * number % 7
        taken.append(time.process_time() - started)
    return min(taken)
