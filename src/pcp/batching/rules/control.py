"""Batching of control flow.

Where all samples take the same branch or the same number of trips, the region is batched inside. Where they do not, every
branch is run and each sample selects its own; and a loop runs until the last sample is done, while those that are done
before keep what they have.
"""

from collections.abc import Sequence

from pcp.batching.dependence import batched_branch_results, batched_carries
from pcp.ir.bindings import Value
from pcp.ir.toolkit.editing import copy_region
from pcp.ops.batching import Batched, Mixed
from pcp.ops.elementwise import equal, where
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.record import supply_batching
from pcp.ops.reductions.primitives import any_
from pcp.tensor import Tensor


def _inlined(batched: Batched, region: int, arguments: Sequence[Value] = ()) -> list[Value]:
    """The values that a region returns, its operations copied to where the builder stands and batched."""
    operations, returned = copy_region(batched.engine.builder, batched.op, region, arguments)
    batched.engine.push(operations)
    return returned


def _return(batched: Batched, values: Sequence[Tensor]) -> None:
    batched.engine.builder.emit("stablehlo.return", [t.value for t in values], ())


def _select(predicate: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Of each sample the one or the other."""
    return where(broadcast_in_dim(predicate, yes.shape, (0,)), yes, no)


def _either(batched: Batched, values: Sequence[Value], flags: Sequence[bool]) -> list[Tensor]:
    engine = batched.engine
    return [
        engine.with_samples(value) if flag else engine.lookup(value)
        for value, flag in zip(values, flags, strict=True)
    ]


def _branches(batched: Batched) -> Mixed | list[Tensor]:
    engine, builder, count = batched.engine, batched.engine.builder, len(batched.op.regions)
    if batched.flags[0]:
        index = batched.operand(0)
        of_branches = [[engine.with_samples(v) for v in _inlined(batched, place)] for place in range(count)]
        if batched.op.name == "stablehlo.if":
            return [_select(index, yes, no) for yes, no in zip(*of_branches, strict=True)]
        *others, chosen = of_branches  # the last stands for every index beyond
        for place, results in enumerate(others):
            here = equal(index, place)
            chosen = [_select(here, new, old) for new, old in zip(results, chosen, strict=True)]
        return chosen
    flags = batched_branch_results(batched.op, set(engine.batched))
    specs = [
        wide if flag else spec
        for spec, wide, flag in zip(batched.specs, batched.widened(), flags, strict=True)
    ]
    op = builder.emit(batched.op.name, [batched.operand(0).value], specs, regions=count)
    for place in range(count):
        with builder.region(op, place, ()):
            _return(batched, _either(batched, _inlined(batched, place), flags))
    return Mixed([Tensor(value, builder) for value in op.results], flags)


def _while(batched: Batched) -> Mixed:
    engine, builder, op = batched.engine, batched.engine.builder, batched.op
    flags, apart = batched_carries(op, set(engine.batched))
    first = _either(batched, list(op.operands), flags)
    specs = [t.spec for t in first]
    types = [value.type for value in op.operands]
    loop = builder.emit("stablehlo.while", [t.value for t in first], specs, regions=2)

    def samples(arguments: Sequence[Value]) -> list[Value]:
        values = []
        for value, type_, flag in zip(arguments, types, flags, strict=True):
            values.append(engine.placeholder(type_) if flag else value)
            if flag:
                engine.batched[values[-1]] = Tensor(value, builder)
        return values

    with builder.region(loop, 0, specs) as arguments:
        (running,) = _inlined(batched, 0, samples(arguments))
        _return(batched, [any_(engine.with_samples(running)) if apart else engine.lookup(running)])
    with builder.region(loop, 1, specs) as arguments:
        following = _either(batched, _inlined(batched, 1, samples(arguments)), flags)
        if apart:
            (running,) = _inlined(batched, 0, samples(arguments))
            still = engine.with_samples(running)
            following = [
                _select(still, new, Tensor(old, builder))
                for new, old in zip(following, arguments, strict=True)
            ]
        _return(batched, following)
    return Mixed([Tensor(value, builder) for value in loop.results], flags)


supply_batching({"case": _branches, "if": _branches, "while": _while})
