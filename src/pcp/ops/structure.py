"""Operations without a function in `pcp.ops`: those that bundle, order, call or talk, and those of which nothing is derived."""

from collections.abc import Sequence

from pcp.ir.bindings import operation_names
from pcp.ir.toolkit.legalisation import DEPRECATED, DYNAMIC
from pcp.ops import elementwise as elementwise  # its records come first
from pcp.ops.batching import Batched, Mixed
from pcp.ops.derivative import Cotangent, Expansion, Primal
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.ops.record import RECORDS, Cost, Kind, Record, Refused, Supplied, declare
from pcp.tensor import Tensor, current_builder

_SHAPES = (
    "its shape is only known when the program runs; make the sizes constants, so that shapes can be refined"
)
_CHANNEL = "derivatives cannot follow what leaves the program through a channel; use a collective operation"
_QUANTISED = "quantised numbers cannot be differentiated; convert to floats, or train with reduce_precision"
_FUTURE = "asynchronous operations have no derivative; use the synchronous operation"


def _barrier(primal: Primal, *cotangents: Cotangent) -> list[Cotangent]:
    """A barrier for the cotangents: what recomputes behind one must not be moved in front of it."""
    nonzero = [g for g in cotangents if g is not None]
    builder = current_builder()
    op = builder.emit("stablehlo.optimization_barrier", [g.value for g in nonzero], [g.spec for g in nonzero])
    kept = (Tensor(value, builder) for value in op.results)
    return [None if g is None else next(kept) for g in cotangents]


def _batched_barrier(batched: Batched) -> Mixed:
    operands = [batched.operand(index) for index in range(len(batched.flags))]
    return Mixed(batched.clone_with(operands, specs=[t.spec for t in operands]), batched.flags)


declare("optimization_barrier", Kind.structure, derivative=_barrier, batching=_batched_barrier)
declare("return", Kind.structure, derivative=None, batching=None)
declare("tuple", Kind.replaced, cost=Cost.free)
declare("get_tuple_element", Kind.replaced, cost=Cost.free)
for _name in DEPRECATED:
    declare(_name, Kind.replaced)
for _name in DYNAMIC:  # replaced where their sizes are constants of the program
    declare(_name, Kind.replaced, derivative=Refused(_SHAPES))

declare(
    "composite",
    Kind.replaced,
    derivative=Supplied("pcp.autodiff.rules.composites"),
    batching=Supplied("pcp.batching.rules.composites"),
)
declare("custom_call", Kind.call, cost=Cost.heavy_move, has_effect=True)

declare("after_all", Kind.communication, derivative=None, batching=None)
for _name in ("infeed", "outfeed"):
    declare(_name, Kind.outside, derivative=None)
for _name in ("send", "recv"):
    declare(_name, Kind.outside, derivative=Refused(_CHANNEL))

for _name, _reason in {
    "async_start": _FUTURE,
    "async_done": _FUTURE,
    "collective_reduce": "only one replica has its result; use all_reduce",
    "set_dimension_size": _SHAPES,
    "uniform_quantize": _QUANTISED,
    "uniform_dequantize": _QUANTISED,
    "chlo._asin_acos_kernel": "it is a step inside the expansion of asin and acos; differentiate those",
    "chlo.ragged_dot": "it has no form without custom kernels; write it as a sum of masked products, as JAX does on a CPU",
    "chlo.scan": "it has no form that XLA compiles yet; write it as a while loop",
}.items():
    declare(_name, Kind.unsupported, derivative=Refused(_reason))

_BROADCAST = "chlo.broadcast_"


def _without_broadcast(name: str) -> Record | None:
    """The record of what an operation does once its operands are broadcast."""
    plain = name.removeprefix(_BROADCAST)
    return RECORDS.get(f"stablehlo.{plain}", RECORDS.get(f"chlo.{plain}")) if plain != name else None


def _broadcast(primal: Primal) -> Sequence[Tensor]:
    """A broadcast of the operands, and the operation without."""
    record = _without_broadcast(primal.op.name)
    assert record is not None
    result, builder = primal.output(), current_builder()
    named = primal.integers("broadcast_dimensions")
    widened = []
    for tensor in primal.inputs:
        last = tuple(range(result.ndim - tensor.ndim, result.ndim))
        axes = named if named and tensor.ndim < result.ndim else last
        widened.append(broadcast_in_dim(tensor, result.shape, axes[: tensor.ndim]).value)
    kept = {key: value for key, value in primal.op.attributes.items() if key != "broadcast_dimensions"}
    op = builder.emit(record.name, widened, (result.spec,), kept)
    return [Tensor(op.results[0], builder)]


for _name in sorted(operation_names()):
    _record = _without_broadcast(_name)
    if _record is not None:
        _rule = None if _record.derivative is None else Expansion(_broadcast)
        declare(_name, Kind.broadcasting, derivative=_rule)
