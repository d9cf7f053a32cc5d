"""Layouts by rule: which arguments are cut over devices, found in the program itself.

`dp` (data parallel) cuts the batch, and every device keeps all state. `zero1` (ZeRO stage 1, arXiv 1910.02054) cuts state that
examples do not meet, too, as an optimizer's moments. `fsdp` (ZeRO stage 3) cuts all state, and gathers it where it is read.
"""

import functools

from pcp.errors import PCPError
from pcp.ir import Program, Role
from pcp.ir.bindings import Value
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations, values_from_outside
from pcp.rewrite.layout.local import Local, local_program
from pcp.rewrite.memory.cutting import Cutting
from pcp.rewrite.memory.parts import flat_module

RULES = ("dp", "zero1", "fsdp")
"""From the least to the most that is cut."""


class InvalidLayout(PCPError):
    """A layout that is none, or that a program does not have."""


class UnevenBatch(InvalidLayout):
    """A batch that cannot be cut into equal parts, one for each device."""


@functools.lru_cache(maxsize=8)
def laid_out(program: Program, rule: str, devices: int) -> Local:
    """What each of several devices computes of a program.

    Arguments:
        rule: one of `RULES`.
        devices: how many, from 2.

    Raises:
        InvalidLayout: there is no such rule, or nothing in the program is computed for examples one by one.
        UnevenBatch: the devices do not divide the batch.
    """
    if rule not in RULES:
        raise InvalidLayout(f"the layout is {rule!r}; expected one of {', '.join(RULES)}, or 'fastest'")
    batch = batch_of(program, devices)
    local = local_program(program, devices, batch, _state(program, rule, devices, batch))
    if local.program.digest == program.digest or local.arguments == local.results == ():
        raise _without_batch(program)
    return local


def batch_of(program: Program, devices: int) -> dict[int, int]:
    """The places of the inputs that hold the examples along their first axes, and that axis.

    They are the inputs of one size by which most of the program is cut; arguments, where it was traced without roles.

    Raises:
        InvalidLayout: there are none.
        UnevenBatch: the devices do not divide their number.
    """
    sizes: dict[int, dict[int, int]] = {}
    roles = {entry.role for entry in program.arguments}
    role = (
        Role.input if Role.input in roles else Role.weight
    )  # a program that was traced without roles has weights alone
    for place, entry in enumerate(program.arguments):
        if entry.role is role and entry.spec.shape and entry.spec.shape[0] > 1:
            sizes.setdefault(entry.spec.shape[0], {})[place] = 0
    if not sizes:
        raise _without_batch(program)
    size = next(iter(sizes)) if len(sizes) == 1 else _most_cut(program, sizes)
    if size % devices:
        names = ", ".join(program.arguments[place].name for place in sizes[size])
        fits = size // devices * devices
        counts = [count for count in range(2, devices) if size % count == 0]
        raise UnevenBatch(
            f"axis 0 of {names} has {size} examples, which {devices} devices do not divide: give {fits} or "
            f"{fits + devices} examples{f', or {counts[-1]} devices' if counts else ''}"
            if fits
            else f"axis 0 of {names} has {size} examples, fewer than {devices} devices: give {devices} examples or a multiple"
        )
    return sizes[size]


def _most_cut(program: Program, sizes: dict[int, dict[int, int]]) -> int:
    module = flat_module(program)  # whose operations end with it
    block = entry_block(module)
    arguments = list(block.arguments)

    def cut_bytes(size: int) -> int:
        parts = next(each for each in range(2, size + 1) if size % each == 0)
        return Cutting(block, {arguments[place]: 0 for place in sizes[size]}, parts).bytes

    return max(sizes, key=cut_bytes)


def _state(program: Program, rule: str, devices: int, batch: dict[int, int]) -> dict[int, int]:
    """The places of the state that a rule cuts, and along which axis: the longest that the devices divide."""
    kept: dict[int, int] = {}
    if rule == "dp":
        return kept
    met = _met_by(program, batch) if rule == "zero1" else set[int]()
    for place, entry in enumerate(program.arguments):
        shape = entry.spec.shape
        axes = [axis for axis, size in enumerate(shape) if size % devices == 0 and size >= devices]
        if entry.role is Role.state and entry.alias is not None and axes and place not in met:
            longest = max(shape[axis] for axis in axes)
            kept[place] = next(axis for axis in axes if shape[axis] == longest)
    return kept


def _met_by(program: Program, batch: dict[int, int]) -> set[int]:
    """The places of the arguments whose values meet those of examples before these are added up."""
    module = flat_module(program)  # whose operations end with it
    block = entry_block(module)
    arguments, operations = list(block.arguments), block_operations(block)
    of_examples: set[Value] = {arguments[place] for place in batch}
    cutting = Cutting(block, {arguments[place]: axis for place, axis in batch.items()}, 1)
    of_examples |= set(cutting.axes)
    needed: set[Value] = set()
    for op in reversed(operations):
        read = (*op.operands, *(values_from_outside(op) if len(op.regions) else ()))
        if any(value in of_examples for value in (*read, *op.results)) or any(
            value in needed for value in op.results
        ):
            needed.update(read)
    return {place for place, value in enumerate(arguments) if value in needed}


def _without_batch(program: Program) -> InvalidLayout:
    names = ", ".join(entry.name for entry in program.arguments if entry.role is not Role.state)
    return InvalidLayout(
        f"program {program.digest[:12]} computes nothing for examples one by one that several devices could share; its inputs "
        f"are {names or 'none'}: give a program with a batch along the first axis of its inputs, or one device"
    )
