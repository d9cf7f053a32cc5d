"""Orders in which the stages of a pipeline compute micro-batches: a rule says how far a device may be ahead.

A unit is a stage, a micro-batch and a kind: forward, backward, and, where a rule splits the backward pass, the gradients of
weights apart from those of what the stage read. Nothing here communicates: an order is a list of units for each device.

Sources: GPipe, Huang et al. 2019; 1F1B and interleaved, Narayanan et al. 2021 (arXiv 2104.04473); zero bubble H1, Qi et al.
2023 (arXiv 2401.10241).
"""

import enum
import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pcp.errors import PCPError


class InvalidPipeline(PCPError):
    """A pipeline that no rule has."""


class Kind(enum.IntEnum):
    """What a stage does with a micro-batch."""

    forward = 0
    backward = 1  # of what the stage read; of weights, too, where the rule does not split
    weights = 2


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """What one device does without a pause."""

    stage: int
    batch: int
    kind: Kind


Ahead = Callable[[int, int, int, int], int]
"""For a device, so many devices, stages and micro-batches, how many forward passes may wait for their backward pass."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How far a device is ahead. Within that it does a forward pass if it can, then a backward pass, then gradients of weights.

    Arguments:
        ahead: how many forward passes may wait for their backward pass.
        held: for so many devices, how many may hold what they computed until gradients of weights, which are units of their
            own then; None where they are part of the backward pass.
    """

    ahead: Ahead
    held: Callable[[int], int] | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Of its units, in the order in which a device does what it can do."""
        return (Kind.forward, Kind.backward) if self.held is None else tuple(Kind)


def _one_each(device: int, devices: int, stages: int, batches: int) -> int:  # noqa: ARG001
    return devices - device


RULES: Mapping[str, Rule] = {
    "gpipe": Rule(lambda _device, _devices, stages, batches: stages * batches),
    "1f1b": Rule(_one_each),
    "interleaved": Rule(
        lambda device, devices, stages, _: 2 * (devices - device - 1) + stages - devices + 1,
    ),
    "zero-bubble-h1": Rule(_one_each, lambda devices: devices),
}


def _in_order(unit: Unit, devices: int, stages: int) -> tuple[int, ...]:
    """Units of a kind on a device: micro-batches in groups of as many as there are devices, through each of its stages."""
    chunk = unit.stage // devices
    nearest = chunk if unit.kind is Kind.forward else stages // devices - chunk
    return (unit.batch // devices, nearest, unit.batch)


def needed_by(unit: Unit, stages: int) -> list[Unit]:
    """What must be done before a unit."""
    stage, batch, kind = unit.stage, unit.batch, unit.kind
    if kind is Kind.forward:
        return [Unit(stage - 1, batch, kind)] if stage else []
    if kind is Kind.weights:
        return [Unit(stage, batch, Kind.backward)]
    after = [Unit(stage + 1, batch, kind)] if stage + 1 < stages else []
    return [Unit(stage, batch, Kind.forward), *after]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of a pipeline.

    Arguments:
        orders: of each device, its units.
        seconds: from the beginning to the end.
        live: of each device, how many forward passes at most wait for their backward pass.
        bubble: the share of the time in which devices wait.
    """

    orders: tuple[tuple[Unit, ...], ...]
    seconds: float
    live: tuple[int, ...]
    bubble: float


def schedule(
    rule: str,
    devices: int,
    batches: int,
    stages: int | None = None,
    seconds: Sequence[float] = (1.0, 1.0, 1.0),
) -> Schedule:
    """The order in which devices compute micro-batches.

    Arguments:
        rule: one of `RULES`.
        devices: how many; stage i is on device i modulo these.
        batches: how many micro-batches.
        stages: a multiple of the devices; None for as many.
        seconds: that a stage takes for a forward pass, for gradients of what it read, for gradients of its weights.

    Raises:
        InvalidPipeline: there is no such rule, or the devices do not divide the stages, or, interleaved, the micro-batches.
    """
    stages = devices if stages is None else stages
    if rule not in RULES or devices < 1 or batches < 1 or stages % devices or stages < devices:
        raise InvalidPipeline(
            f"a pipeline {rule!r} of {devices} devices, {stages} stages and {batches} micro-batches was given; expected one of "
            f"{', '.join(RULES)}, at least one of each, and stages that the devices divide"
        )
    if stages > devices and (rule != "interleaved" or batches % devices):
        raise InvalidPipeline(
            f"{stages} stages on {devices} devices and {batches} micro-batches were given with {rule!r}; several stages on a "
            f"device are interleaved, with micro-batches in groups of {devices}: give 'interleaved' and a multiple of {devices}"
        )
    return _simulated(RULES[rule], devices, batches, stages, seconds)


def _simulated(rule: Rule, devices: int, batches: int, stages: int, seconds: Sequence[float]) -> Schedule:
    whole = seconds[1] + (0 if Kind.weights in rule.kinds else seconds[2])
    took = {Kind.forward: seconds[0], Kind.backward: whole, Kind.weights: seconds[2]}
    waiting = [
        {
            kind: deque(
                sorted(
                    (
                        Unit(stage, batch, kind)
                        for stage in range(device, stages, devices)
                        for batch in range(batches)
                    ),
                    key=lambda unit: _in_order(unit, devices, stages),
                )
            )
            for kind in rule.kinds
        }
        for device in range(devices)
    ]
    orders: list[list[Unit]] = [[] for _ in range(devices)]
    live, peaks, busy = [0] * devices, [0] * devices, [False] * devices
    done: set[Unit] = set()
    ends: list[tuple[float, int, Unit]] = []
    now = 0.0

    def may_begin(device: int, unit: Unit) -> bool:
        if unit.kind is Kind.forward:
            counts = Counter(each.kind for each in orders[device])
            ahead = counts[Kind.forward] - counts[Kind.backward]
            if ahead >= rule.ahead(device, devices, stages, batches):
                return False
            if rule.held is not None and live[device] >= rule.held(devices):
                return False
        return done.issuperset(needed_by(unit, stages))

    while any(queue for queues in waiting for queue in queues.values()) or ends:
        for device, queues in enumerate(waiting):
            heads = [queues[kind][0] for kind in rule.kinds if queues[kind]]
            unit = next((each for each in heads if not busy[device] and may_begin(device, each)), None)
            if unit is not None:
                queues[unit.kind].popleft()
                orders[device].append(unit)
                busy[device] = True
                live[device] += unit.kind is Kind.forward
                peaks[device] = max(peaks[device], live[device])
                heapq.heappush(ends, (now + took[unit.kind], device, unit))
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, device, unit = heapq.heappop(ends)
            done.add(unit)
            busy[device] = False
            live[device] -= unit.kind is rule.kinds[-1]
    work = sum(took[unit.kind] for order in orders for unit in order)
    return Schedule(tuple(map(tuple, orders)), now, tuple(peaks), 1 - work / (now * devices))
