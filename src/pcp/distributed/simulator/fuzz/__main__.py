"""Fuzz the state machines: `python -m pcp.distributed.simulator.fuzz --seconds 60 --first 0`."""

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from pcp.distributed.simulator.fuzz.gossip import GossipLife
from pcp.distributed.simulator.fuzz.shepherd import ShepherdLife
from pcp.distributed.simulator.fuzz.worker import WorkerLife

LIVES: dict[str, Callable[[int], Any]] = {
    "shepherd": ShepherdLife,
    "worker": WorkerLife,
    "gossip": GossipLife,
}


def live(kind: str, seed: int) -> tuple[int, str]:
    """Live one life; returns how much happened in it, and what broke."""
    life = LIVES[kind](seed)
    try:
        life.run()
    except Exception as error:  # whatever it is, it is what was looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        return life.events, f"{type(error).__name__}: {error!s:.1000} ({where.filename}:{where.lineno})"
    return life.events, ""


def main() -> int:
    """Live the lives that the command line asks for; return 1 if one broke."""
    parser = argparse.ArgumentParser(description="Fuzz the state machines of a distributed run.")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument(
        "--kind", choices=sorted(LIVES), action="append", help="of state machine; all by default"
    )
    options = parser.parse_args()
    logging.disable()
    end, seed = time.monotonic() + options.seconds, options.first
    lives = events = broken = 0
    while time.monotonic() < end:
        for kind in options.kind or LIVES:
            happened, failure = live(kind, seed)
            lives, events = lives + 1, events + happened
            if failure:
                broken += 1
                print(f"{kind} {seed}: {failure}", flush=True)
        seed += 1
    print(f"{lives} lives of seeds {options.first} to {seed - 1}, {events} events; {broken} broke")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
