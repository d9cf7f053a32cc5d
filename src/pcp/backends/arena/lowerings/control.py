"""Loops and branches: instructions that run lists of instructions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import block_operations, returned_by

Array = np.ndarray[Any, Any]
Steps = list[tuple[Any, Any]]


def run_while(test: Steps, flag: Array, steps: Steps) -> None:
    """Run the steps as long as the test says so."""
    while True:
        for function, arguments in test:
            function(*arguments)
        if not flag.item():
            return
        for function, arguments in steps:
            function(*arguments)


def run_branch(index: Array, *branches: Steps) -> None:
    """Run one of the branches, the last one for an index of none."""
    place = int(index)
    for function, arguments in branches[place if 0 <= place < len(branches) else -1]:
        function(*arguments)


def _run_either(predicate: Array, yes: Steps, no: Steps) -> None:
    for function, arguments in yes if predicate.item() else no:
        function(*arguments)


def _while(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """The carries live in storages of their own, which the body writes directly where nothing reads the old value then."""
    condition, body = (region.blocks[0] for region in op.regions)
    carries: list[View] = []
    for x in operands:
        if r.takes_over(x) and all(x.storage is not other.storage for other in carries):
            carries.append(x)
        else:
            carries.append(r.result(op, len(carries)))
            r.copy(x, carries[-1])
    flag = r.new((), np.dtype(bool))
    with r.looping():
        for before, inside, carry in zip(condition.arguments, body.arguments, carries, strict=True):
            r.enter(before, carry, r.uses(before) + r.uses(inside))
            r.enter(inside, carry, r.uses(before) + r.uses(inside))
        with r.apart() as test:
            r.block(block_operations(condition), returned_by(condition), [flag])
        with r.apart() as steps:
            r.block(block_operations(body), returned_by(body), carries)
        r.emit(run_while, test, flag, steps, writes=())
    for carry in carries:
        carry.storage.uses = 0
    return carries


def _branches(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    homes = [r.result(op, index) for index in range(len(op.results))]
    lists = []
    for region in op.regions:
        block = region.blocks[0]
        with r.apart() as steps:
            r.block(block_operations(block), returned_by(block), homes)
        lists.append(steps)
        for home in homes:
            home.storage.uses = 0
    r.emit(run_branch if op.name == "stablehlo.case" else _run_either, operands[0], *lists, writes=())
    return homes


LOWERINGS: dict[str, Lowering] = {"while": _while, "case": _branches, "if": _branches}
