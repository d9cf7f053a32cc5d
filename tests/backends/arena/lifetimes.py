"""A check of lifetimes that knows nothing of the planner: who wrote each byte of the workspace last, and who reads it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.arena.storage import Instruction, Storage, View

Problems = list[str]


class Owners:
    """For each byte of the workspace, the storage that was written there last."""

    def __init__(self, executable: ArenaExecutable) -> None:
        self.numbers = {s: n for n, s in enumerate(executable.recording.storages, 1)}
        self.bytes = np.zeros(executable.workspace, np.int32)
        self.problems: Problems = []

    def places(self, view: View) -> Any:
        """The bytes of the elements of a view, in the workspace."""
        inside = np.zeros((), np.int64)
        for n, stride in zip(view.shape, view.strides, strict=True):
            inside = inside[..., None] + np.arange(n) * stride
        first = view.storage.offset + view.offset + inside
        return np.unique(first)[:, None] + np.arange(view.dtype.itemsize) if inside.size else np.empty(0, int)

    def write(self, view: View) -> None:
        if view.storage.in_workspace:
            places = self.places(view)
            if places.size and (places.min() < view.storage.offset or places.max() >= end_of(view.storage)):
                self.problems.append(f"{view} reaches out of its storage")
            self.bytes[places] = self.numbers[view.storage]

    def read(self, view: View, by: str) -> None:
        if view.storage.in_workspace:
            found = self.bytes[self.places(view)]
            others = np.unique(found[found != self.numbers[view.storage]])
            if others.size:
                self.problems.append(
                    f"{by} reads storage {self.numbers[view.storage]}, where now is {others}"
                )


def end_of(storage: Storage) -> int:
    return storage.offset + storage.size


def run(instructions: Sequence[Instruction], owners: Owners, repeats: int = 2) -> None:
    """Every instruction reads what it takes, then writes; those within loops are run twice, every branch is."""
    for each in instructions:
        name = getattr(each.function, "__name__", str(each.function))
        views = [(place, a) for place, a in enumerate(each.arguments) if isinstance(a, View)]
        bodies = [a for a in each.arguments if isinstance(a, list)]
        for place, view in views:
            if place not in each.writes and not (bodies and name == "run_while"):
                owners.read(view, name)
        if name in ("run_branch", "_run_either"):
            before = owners.bytes.copy()
            for body in bodies:
                owners.bytes[:] = before
                run(body, owners)
        else:
            for body in bodies * (repeats if bodies else 0):
                for place, view in views:  # what the function itself fills for its body
                    if place in each.writes:
                        owners.write(view)
                run(body, owners)
        for place, view in views:
            if place in each.writes:
                owners.write(view)


def problems_of(executable: ArenaExecutable) -> Problems:
    """What reads bytes in which something else was written meanwhile."""
    owners = Owners(executable)
    for view in executable.recording.arguments:
        if view.storage in owners.numbers:
            owners.write(view)
    run(executable.recording.instructions, owners)
    for view in executable.recording.results:
        owners.read(view, "the caller")
    return owners.problems
