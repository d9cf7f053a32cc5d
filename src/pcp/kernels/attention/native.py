"""Native kernels for attention and its gradient: no scores in memory, operands read in the layout that products write."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ATTENTION
from pcp.kernels.artifact import Native
from pcp.kernels.attention.heads import Heads, Names, Order
from pcp.kernels.attention.lengths import Masked, takes_lengths
from pcp.kernels.attention.pages import NO_PAGES, Pages
from pcp.kernels.attention.sight import MASKS
from pcp.kernels.attention.tiles import bias_cotangent
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16, F32, Storage
from pcp.kernels.views import dense_strides, view_of
from pcp.rewrite.raising.attention import BROADCAST, CONTRACTED, FREE
from pcp.tensor import Tensor, current_builder

_LIBRARY = LIBRARIES["attention"]


@dataclass(frozen=True, slots=True)
class _Read:
    """An operand as handlers read it.

    Arguments:
        tensor: in which it lies.
        start: of its elements, the first of the operand.
        strides: in elements, by the names of axes.
    """

    tensor: Tensor
    start: int
    strides: Mapping[int, int]

    def along(self, axes: Names) -> list[int]:
        """Strides; 0 along an axis that the operand does not have."""
        return [0 if axis == BROADCAST else self.strides.get(axis, 0) for axis in axes]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How handlers read and write: by strides, every number of a query, key or value beside the next one.

    Arguments:
        heads: which axis of which operand is what.
    """

    heads: Heads

    def axes(self, kind: str) -> Names:
        """In the order in which products write them: batch, length, heads, width."""
        return tuple(axis for (axis,) in self.heads.axes(kind, Order.apart))

    def spec(self, kind: str) -> TensorSpec:
        """Of an array that handlers write."""
        return TensorSpec(self.heads.shape(kind, Order.apart), DType.f32)

    def read(self, tensor: Tensor, kind: str) -> _Read:
        """An operand where it lies, or a copy of it if its numbers are not side by side there."""
        names, width = self.heads.attributes[kind], CONTRACTED if kind in ("query", "key") else FREE
        view = view_of(tensor.value)
        strides = dict(zip(names, view.strides, strict=True))
        if strides[width] == 1 or self.heads.sizes[width] == 1:
            return _Read(Tensor(view.base, current_builder()), view.start, strides)
        copied = self.heads.turned(tensor, kind, Order.apart)
        return _Read(copied, 0, dict(zip(self.axes(kind), dense_strides(copied.shape), strict=True)))

    @property
    def normalisers(self) -> TensorSpec:
        """Of what the handler returns besides: of each query the score beside which its weights are taken, then of each
        the logarithm of their sum.
        """
        axes = (*self.heads.batch, *self.heads.groups, self.heads.queries)
        return TensorSpec((2 * math.prod(self.heads.sizes[axis] for axis in axes),), DType.f32)

    def attributes(
        self, read: Sequence[_Read], masks: Mapping[str, Tensor]
    ) -> dict[str, float | Sequence[int]]:
        """What handlers are told of query, key and value, and of masks."""
        heads, attributes, sight = self.heads, self.heads.attributes, self.heads.sight
        queries = (*heads.batch, *(heads.groups or (BROADCAST,)), heads.queries)
        keys = (*heads.batch, heads.keys)
        sizes = {**heads.sizes, BROADCAST: 1}
        along = {"query": queries, "key": keys, "value": keys, "result": queries}
        strides = {kind: each.along(along[kind]) for kind, each in zip(ATTENTION.operands, read, strict=True)}
        for kind in (*ATTENTION.operands, "result"):
            written = dict(zip(self.axes(kind), dense_strides(self.spec(kind).shape), strict=True))
            steps = [written.get(axis, 0) for axis in along[kind]]
            strides[kind if kind == "result" else f"for_{kind}"] = steps
        strides |= {kind: [] for kind in MASKS}
        for kind, mask in masks.items():
            by_axis = dict(zip(attributes[kind], dense_strides(mask.shape), strict=True))
            strides[kind] = _Read(mask, 0, by_axis).along((*queries, heads.keys))
        return {
            "batch": [sizes[axis] for axis in heads.batch],
            "sizes": [sizes[axis] for axis in (*queries[-2:], heads.keys, CONTRACTED, FREE)],
            "starts": [each.start for each in read],
            **strides,
            "scale": float(attributes["scale"]),
            "fill": sight.finite,
            "causal": int(sight.offset is not None),
            "skips": int(sight.skips),
            "offset": sight.offset or 0,
            "window": sight.window or 0,
        }


@dataclass(frozen=True, slots=True)
class _Call:
    """The operands of a site as handlers take them."""

    masked: Masked
    layout: _Layout
    operands: Sequence[Tensor]
    masks: Sequence[Tensor]
    attributes: Mapping[str, float | Sequence[int]]

    @classmethod
    def of(cls, op: ir.Operation, reads_pages: bool = False) -> "_Call":
        """Those of an operation.

        Arguments:
            reads_pages: whether keys and values that the program gathers out of pages are read there.
        """
        masked = Masked.of(op)
        heads = masked.heads
        layout, masks = _Layout(heads), heads.masks(masked.operands)
        kinds = dict(zip(ATTENTION.operands, masked.operands, strict=False))
        pages = Pages.of(heads, kinds["key"], kinds["value"]) if reads_pages else None
        read = [layout.read(kinds["query"], "query")]
        if pages is None:
            read += [layout.read(kinds[kind], kind) for kind in ("key", "value")]
        else:
            read += [_Read(each.stored, each.start, each.strides) for each in (pages.key, pages.value)]
        of_pages = NO_PAGES if pages is None else pages.attributes
        attributes = {**layout.attributes(read, masks), **of_pages}
        further = () if pages is None else pages.operands
        return cls(masked, layout, [each.tensor for each in read], (*masks.values(), *further), attributes)

    def forward(self, storage: Storage) -> list[Tensor]:
        """The result as it is written, and the normalisers."""
        operands = (*self.operands, *self.masks)
        results = (self.layout.spec("result"), self.layout.normalisers)
        return native_call(_LIBRARY, f"attention_{storage}", operands, results, self.attributes)

    def gradient(self, storage: Storage, cotangent: Tensor, forward: Sequence[Tensor]) -> list[Tensor]:
        """The cotangents of query, key and value as they are written."""
        taken = self.masked.turned(cotangent, "result", Order.apart)
        operands = (*self.operands, taken, *forward, *self.masks)
        results = [self.layout.spec(kind) for kind in ATTENTION.operands]
        return native_call(_LIBRARY, f"attention_gradient_{storage}", operands, results, self.attributes)


def _attention(op: ir.Operation, storage: Storage) -> list[Tensor]:
    call = _Call.of(op, reads_pages=True)
    y, normalisers = call.forward(storage)
    return [call.masked.returned(y, "result", Order.apart), y, normalisers]


def _gradient(op: ir.Operation, residuals: Sequence[Tensor], storage: Storage) -> list[Tensor]:
    call, named = _Call.of(op), Named.of(op)
    cotangent = tensors(op)[len(named.operands)]
    cotangents = call.gradient(storage, cotangent, residuals or call.forward(storage))
    return call.masked.cotangents(op, cotangents, bias_cotangent(op, storage), Order.apart)


def _applies(op: ir.Operation) -> bool:
    heads = Heads.of_f32(op)
    if heads is None or "cap" in heads.attributes or not takes_lengths(op, heads):
        return False
    return len(heads.groups) <= 1 and 0 not in heads.sizes.values()


_ABOUT = "tile by tile, without scores in memory"
register_with_gradient(
    Kernel(
        "attention.native",
        _ABOUT,
        _applies,
        Native(_LIBRARY, _attention),
        nonfinite="skips",
        version=4,
        hands=("attention.native_result", "attention.native_normaliser"),
        storages=(F32, BF16),
        keeps="operands of products",
    ),
    Native(_LIBRARY, _gradient),
    about=f"{_ABOUT}; weights are computed again",
)
