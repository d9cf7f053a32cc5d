"""The batched form that every operation has: a loop that runs it for one sample after another."""

from pcp.ir import DType
from pcp.ir.toolkit.editing import substitute
from pcp.ops.batching import Batched
from pcp.ops.elementwise import less
from pcp.ops.indexing.blocks import dynamic_slice, dynamic_update_slice
from pcp.ops.movement import reshape, zeros
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
        samples = {value: _sample(whole, place).value for value, whole in moving.items()}
        copy = op.clone(ip=builder.insertion)
        substitute(copy, samples)
        stored = [
            _with_sample(Tensor(value, builder), Tensor(result, builder), place)
            for value, result in zip(kept, copy.results, strict=True)
        ]
        builder.emit("stablehlo.return", [(place + 1).value, *(t.value for t in stored)], ())
    return [Tensor(value, builder) for value in list(loop.results)[1:]]


def _sample(whole: Tensor, index: Tensor) -> Tensor:
    shape = whole.shape[1:]
    return reshape(dynamic_slice(whole, [index, *[0] * len(shape)], (1, *shape)), shape)


def _with_sample(whole: Tensor, sample: Tensor, index: Tensor) -> Tensor:
    row = reshape(sample, (1, *sample.shape))
    return dynamic_update_slice(whole, row, [index, *[0] * sample.ndim])
