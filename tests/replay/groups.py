"""All facts, in groups of programs: a group is what one test compares."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context

import pcp
from tests.replay import programs
from tests.replay.facts import SHORT, Facts, bits, choices, derived
from tests.replay.scenarios import SEARCHES
from tests.replay.stored import stored

RULES = 12
"""Groups of derivatives."""


Find = Callable[[bool], Facts]
"""Finds the facts of a program; those that are of one machine, too, where that is asked for."""


@dataclass(frozen=True)
class Group:
    """Programs whose facts are found together.

    Arguments:
        kind: of its facts.
        programs: their names, and what finds the facts of each.
        needs_egglog: whether they cannot be had without.
    """

    kind: str
    programs: Callable[[], Iterable[tuple[str, Find]]]
    needs_egglog: bool = False

    def facts(self, own: bool = False) -> dict[str, Facts]:
        """By program."""
        return {name: find(own) for name, find in self.programs()}


def _with_bits(facts: Facts, program: pcp.Program, own: bool) -> Facts:
    return facts | {"bits": bits(program)} if own else facts


def _digest(program: pcp.Program) -> Facts:
    return {"digest": program.digest[:SHORT]}


def _rules(number: int) -> Group:
    def found() -> Iterator[tuple[str, Find]]:
        for name, row in programs.rules()[number::RULES]:
            yield name, lambda _, row=row: derived(programs.of_rule(row))

    return Group("rules", found)


def _model(name: str) -> Group:
    def of_loss(own: bool) -> Facts:
        loss = programs.loss(name)
        return _with_bits(derived(loss) | choices(loss), loss, own)

    def of_gradient(own: bool) -> Facts:
        gradient = programs.gradient(name)
        return _with_bits(choices(gradient), gradient, own)

    return Group("models", lambda: [(f"loss of {name}", of_loss), (f"gradient of {name}", of_gradient)])


def _step(name: str, optimizer: str) -> Group:
    def of_step(own: bool) -> Facts:
        step = programs.training_step(name, optimizer)
        # Sites of a step are those of the gradient and the optimizer's: on the other processor nothing new is seen.
        return _with_bits(_digest(step) | choices(step, bare=False), step, own)

    return Group("models", lambda: [(f"step of {name} by {optimizer}", of_step)])


def _inference(name: str) -> Group:
    def found() -> Iterator[tuple[str, Find]]:
        for what, make in programs.inference(name):
            yield what, lambda _, make=make: _digest(make()) | choices(make())

    return Group("models", found)


def _others(of: Callable[[], Iterator[tuple[str, programs.Make]]]) -> Group:
    def found() -> Iterator[tuple[str, Find]]:
        for name, make in of():
            yield name, lambda _, make=make: derived(make())

    return Group("others", found)


def _search(name: str) -> Group:
    search = SEARCHES[name]
    return Group("searches", lambda: [(f"search, {name}", lambda _: search.run())], search.egglog)


GROUPS: dict[str, Group] = {
    **{f"rules {number}": _rules(number) for number in range(RULES)},
    **{name: _model(name) for name in programs.MODELS},
    **{f"{name} by {each}": _step(name, each) for name in programs.MODELS for each in programs.OPTIMIZERS},
    **{f"inference of {name}": _inference(name) for name in ("gpt2", "llama")},
    "examples": _others(programs.examples),
    "corpus": _others(programs.corpus),
    "files": _others(programs.files),
    **{f"search, {name}": _search(name) for name in SEARCHES},
}
"""Every group, by name."""


def _of(group: str, own: bool) -> dict[str, Facts]:
    return GROUPS[group].facts(own)


def everything(own: bool, jobs: int) -> dict[str, Facts]:
    """All facts that can be had here; those of equal programs that were recorded, where egglog is missing.

    Arguments:
        own: whether those of this machine count.
        jobs: processes.
    """
    has_egglog = find_spec("egglog") is not None
    names = [name for name, group in GROUPS.items() if has_egglog or not group.needs_egglog]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        made = [found for group in pool.map(_of, names, [own] * len(names)) for found in group.items()]
    kept = {name: facts for name, facts in stored().items() if name in GROUPS.keys() - set(names)}
    if kept:
        print(
            f"egglog is not installed: {len(kept)} searches for equal programs are taken as they were recorded"
        )
    return dict(made) | kept
