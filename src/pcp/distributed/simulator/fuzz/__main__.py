"""Fuzz the state machines: `python -m pcp.distributed.simulator.fuzz --seconds 60 --first 0`."""

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable
from random import Random
from typing import Any

from pcp.distributed.simulator.fuzz.corpus import Corpus, Plan, plan_of, words
from pcp.distributed.simulator.fuzz.gossip import GossipLife
from pcp.distributed.simulator.fuzz.guests import GuestLife
from pcp.distributed.simulator.fuzz.pushes import PushesLife
from pcp.distributed.simulator.fuzz.shepherd import ShepherdLife
from pcp.distributed.simulator.fuzz.worker import WorkerLife

LIVES: dict[str, tuple[Callable[[Plan | int], Any], int]] = {
    "shepherd": (ShepherdLife, 6),
    "guest": (GuestLife, 2),
    "worker": (WorkerLife, 1),
    "gossip": (GossipLife, 1),
    "pushes": (PushesLife, 1),
}
"""What is lived, and its part of the time."""


class Fuzz:
    """Lives of some kinds, one after another.

    Arguments:
        first: seed of the first; later ones have the next.
        kinds: of lives; all without.
    """

    def __init__(self, first: int, kinds: list[str] | None = None) -> None:
        self.seed = first
        self.spent = dict.fromkeys(kinds or LIVES, 0.0)
        self.corpora = {kind: Corpus(Random(f"{kind} {first}")) for kind in self.spent}
        self.lives = self.events = 0

    def live(self) -> tuple[str, Plan, str]:
        """Live one life, of the kind that had the least of its part of the time; returns what it was, and what broke."""
        kind = min(self.spent, key=lambda each: self.spent[each] / LIVES[each][1])
        plan, begun = self.corpora[kind].plan(self.seed), time.process_time()
        self.seed += 1
        happened, events, failure = live(kind, plan)
        self.corpora[kind].learn(plan, happened)
        self.spent[kind] += time.process_time() - begun
        self.lives, self.events = self.lives + 1, self.events + events
        return kind, plan, failure


def live(kind: str, plan: Plan | int) -> tuple[dict[Any, int], int, str]:
    """Live one life; returns what happened in it first after how many actions, how many events it had, and what broke."""
    life: Any = None
    try:
        life = LIVES[kind][0](plan)
        life.run()
    except Exception as error:  # whatever it is, it is what was looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error!s:.1000} ({where.filename}:{where.lineno})"
        return (life.happened, life.events, failure) if life else ({}, 0, failure)
    return life.happened, life.events, ""


def main() -> int:
    """Live the lives that the command line asks for; return 1 if one broke."""
    parser = argparse.ArgumentParser(description="Fuzz the state machines of a distributed run.")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--kind", choices=sorted(LIVES), action="append", help="of life; all by default")
    parser.add_argument(
        "--plan", type=plan_of, help="live the one life with these seeds, as it is printed, of one kind"
    )
    options = parser.parse_args()
    logging.disable()
    if options.plan:
        failures = [live(kind, options.plan)[2] for kind in options.kind or LIVES]
        print("\n".join(filter(None, failures)) or "nothing broke")
        return 1 if any(failures) else 0
    end, broken = time.monotonic() + options.seconds, 0
    fuzz = Fuzz(options.first, options.kind)
    while time.monotonic() < end:
        kind, plan, failure = fuzz.live()
        if failure:
            broken += 1
            print(f"--kind {kind} --plan {words(plan)}: {failure}", flush=True)
    happened = sum(len(each.seen) for each in fuzz.corpora.values())
    print(
        f"{fuzz.lives} lives of seeds {options.first} to {fuzz.seed - 1}, {fuzz.events} events of {happened} kinds; "
        f"{broken} broke"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
