"""Which values of a trip of a loop are kept for its derivative, and which are made again."""

from dataclasses import dataclass

from pcp.autodiff.min_cut import INFINITE, Network
from pcp.autodiff.regions import operations_of, returned_by, values_from_outside
from pcp.ir.bindings import Value, ir
from pcp.ir.program import spec_of

# Cheaper to make again than to write and read: no more than some arithmetic for each element.
_CHEAP = frozenset(
    [
        "abs",
        "add",
        "and",
        "bitcast_convert",
        "broadcast_in_dim",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "concatenate",
        "constant",
        "convert",
        "count_leading_zeros",
        "divide",
        "dynamic_slice",
        "floor",
        "gather",
        "imag",
        "iota",
        "is_finite",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "optimization_barrier",
        "or",
        "pad",
        "popcnt",
        "real",
        "reduce_precision",
        "remainder",
        "reshape",
        "reverse",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "slice",
        "sqrt",
        "subtract",
        "transpose",
        "xor",
    ]
)
# What would come out differently, or happen twice.
_ONCE = frozenset({"stablehlo.rng", "stablehlo.custom_call"})

Place = tuple[int, int]
"""A value of a block by numbers that hold in every copy: operation (-1 for the arguments), result."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the arguments of the block of a trip with its derivative are.

    Arguments:
        carries: the places of those that a trip changes; what comes before them is known in both passes.
        cotangents: the places of the cotangents.
    """

    carries: range
    cotangents: range


def residuals_of(block: ir.Block, arguments: Arguments, recompute: bool) -> list[Place]:
    """The values to keep: those of the least size from which the backward part of a trip can be computed.

    Arguments:
        block: a trip of a loop followed by its derivative; it returns carries and then as many cotangents as it takes.
        arguments: what its arguments are.
        recompute: whether all of the forward part may be computed again, or only what is cheap.

    Source: Jain et al., "Checkmate", 2020, and Chen, "Min-cut optimal recomputation", 2022, for the cut; a value may be made
    again from what is kept, and nothing else is kept.
    """
    place: dict[Value, Place] = {value: (-1, i) for i, value in enumerate(block.arguments)}
    operations = operations_of(block)
    inputs = list(block.arguments)
    backward = {inputs[i] for i in arguments.cotangents}
    varying = {
        inputs[i] for i in arguments.carries
    }  # differs from trip to trip and is not known in both passes
    trip = set(inputs[: arguments.carries.start])
    network = Network()
    nothing_needed = True
    for value in varying:
        network.connect("source", ("in", place[value]), INFINITE)
        _size(network, value, place[value])

    def need(value: Value) -> None:
        nonlocal nothing_needed
        if value in varying:
            nothing_needed = False
            network.connect(("out", place[value]), "sink", INFINITE)

    for number, op in enumerate(operations):
        place.update((value, (number, i)) for i, value in enumerate(op.results))
        reads = [*op.operands, *(values_from_outside(op) if len(op.regions) else ())]
        if any(value in backward for value in reads):
            backward.update(op.results)
            for value in reads:
                need(value)
            continue
        changing = [value for value in reads if value in varying]
        again = op.name not in _ONCE and (recompute or op.name.removeprefix("stablehlo.") in _CHEAP)
        if not changing and (again or not any(value in trip for value in reads)) and op.name not in _ONCE:
            trip.update(op.results) if any(value in trip for value in reads) else None
            continue
        for value in op.results:
            varying.add(value)
            _size(network, value, place[value])
            if not again:
                network.connect("source", ("in", place[value]), INFINITE)
            for read in changing:
                network.connect(("out", place[read]), ("in", place[value]), INFINITE)
    for value in returned_by(block)[len(arguments.carries) :]:
        need(value)
    if nothing_needed:
        return []
    behind = network.behind_cut("source", "sink")
    kept = [where for value, where in place.items() if value in varying and _is_cut(where, behind)]
    return sorted(kept)


def _size(network: Network, value: Value, where: Place) -> None:
    network.connect(("in", where), ("out", where), max(1, spec_of(value.type).bytes))


def _is_cut(where: Place, behind: set[object]) -> bool:
    return ("out", where) in behind and ("in", where) not in behind
