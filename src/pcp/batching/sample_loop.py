"""The batched form that every operation has: a loop that runs it for one sample after another."""

from pcp.ir import DType
from pcp.ir.toolkit.editing import substitute
from pcp.ops.batching import Batched
from pcp.ops.elementwise import less
from pcp.ops.indexing.blocks import row_at, with_row
from pcp.ops.movement import zeros
from pcp.tensor import Tensor, as_tensor


def sample_loop(batched: Batched) -> list[Tensor]:
    """The results of an operation for all samples, from a loop over them."""
    op, engine, builder = batched.op, batched.engine, batched.engine.builder
    moving = {v: engine.batched[v] for v in (*op.operands, *batched.captured) if v in engine.batched}
    first = [as_tensor(0, DType.i32), *(zeros(spec.shape, spec.dtype) for spec in batched.widened())]
    specs = [t.spec for t in first]
    loop = builder.emit("stablehlo.while", [t.value for t in first], specs, regions=2)
    with builder.region(loop, 0, specs) as (index, *_):
        builder.emit("stablehlo.return", [less(Tensor(index, builder), batched.size).value], ())
    with builder.region(loop, 1, specs) as (index, *kept):
        place = Tensor(index, builder)
        samples = {value: row_at(whole, place).value for value, whole in moving.items()}
        copy = op.clone(ip=builder.insertion)
        substitute(copy, samples)
        stored = [
            with_row(Tensor(value, builder), place, Tensor(result, builder))
            for value, result in zip(kept, copy.results, strict=True)
        ]
        builder.emit("stablehlo.return", [(place + 1).value, *(t.value for t in stored)], ())
    return [Tensor(value, builder) for value in list(loop.results)[1:]]
