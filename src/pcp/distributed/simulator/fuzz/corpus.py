"""Lives that led to something new, and others that begin like them: what one finds, the next goes on from."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from random import Random

Plan = tuple[tuple[int, int], ...]
"""Of a life: seeds, and how many actions of the life are done when the next of them takes over; 0 for the last."""

LONGEST = 8  # seeds of one plan
KEPT = 4096


def words(plan: Plan) -> str:
    """A plan as the command line takes it: 17x83+99."""
    return "+".join(f"{seed}x{until}" if until else f"{seed}" for seed, until in plan)


def plan_of(text: str) -> Plan:
    """The plan that `words` wrote."""
    parts = (each.partition("x") for each in text.split("+"))
    return tuple((int(seed), int(until or 0)) for seed, _, until in parts)


class Choices:
    """All that is random in a life: seeds that take over from each other.

    Arguments:
        kind: of the life.
        plan: of the life, or one seed.
    """

    def __init__(self, kind: str, plan: Plan | int) -> None:
        self.random, self.actions, self._kind = Random(), 0, kind
        self._left = iter(((plan, 0),) if isinstance(plan, int) else plan)
        self._next()

    def _next(self) -> None:
        seed, self._until = next(self._left)
        self.random.seed(f"{self._kind} {seed}")

    def act(self) -> None:
        """Count an action."""
        if self.actions == self._until and self.actions:
            self._next()
        self.actions += 1


@dataclass(slots=True)
class Corpus:
    """Plans of lives in which something happened that had not happened before.

    Arguments:
        random: chooses.
        seen: what ever happened.
    """

    random: Random
    seen: set[Hashable] = field(default_factory=set)
    _plans: list[Plan] = field(default_factory=list)

    def plan(self, seed: int) -> Plan:
        """A plan with a seed that was not used: alone, or after the beginning of one that found something."""
        if not self._plans or self.random.random() < 0.4:
            return ((seed, 0),)
        newer = max(self.random.randrange(len(self._plans)), self.random.randrange(len(self._plans)))
        return (*self._plans[newer], (seed, 0))

    def learn(self, plan: Plan, happened: dict[Hashable, int]) -> None:
        """Take what happened in a life, and after how many actions first."""
        new = sorted({actions for what, actions in happened.items() if what not in self.seen and actions})
        self.seen.update(happened)
        for actions in new[-2:]:
            begun = [each for each in plan if 0 < each[1] < actions]
            going = plan[len(begun)][0]
            if len(begun) < LONGEST:
                self._plans.append((*begun, (going, actions)))
        del self._plans[:-KEPT]
