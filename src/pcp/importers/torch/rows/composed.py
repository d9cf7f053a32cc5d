"""Operations that PyTorch composes of others in the table. A graph of these and other rows is read as it was exported: having
PyTorch decompose it takes longer than exporting it."""

from collections.abc import Callable, Sequence
from typing import Any

from pcp import ops
from pcp.importers.torch.rows.arrangement import narrow, reshape, split_with_sizes
from pcp.importers.torch.rows.arrangement import pad as pad_constant
from pcp.importers.torch.rows.elementwise import where
from pcp.importers.torch.rows.losses import MEAN, nll_loss
from pcp.importers.torch.rows.normalization import group_norm as native_group_norm
from pcp.importers.torch.rows.normalization import layer_norm as native_layer_norm
from pcp.importers.torch.rows.randomness import native_dropout
from pcp.importers.torch.rows.reduction import log_softmax, wide
from pcp.importers.torch.rows.windows import Sizes, convolution
from pcp.importers.torch.table import TABLE, row
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor, TensorLike


def _said(node: Any, place: int, name: str, default: object) -> Any:
    """What a node says of an operand."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _rank(node: Any) -> int:
    return len(node.args[0].meta["val"].shape)


@row("contiguous.default", "to.device", "to.dtype", "to.dtype_layout", "type_as.default", is_composed=True)
def same(x: Tensor, *_: object, **__: object) -> Tensor:
    """x; the conversion to PyTorch's element type happens to every result."""
    return x


row("reshape.default", "flatten.using_ints", "expand_as.default", knows_result=True, is_composed=True)(
    lambda x, *_, result, **__: reshape(x, (), result=result)
)
row("__and__.Scalar", "__and__.Tensor", is_composed=True)(ops.bitwise_and)
row("__or__.Scalar", "__or__.Tensor", is_composed=True)(ops.bitwise_or)


def _drops(node: Any) -> bool:
    return bool(_said(node, 2, "train", True)) and _said(node, 1, "p", 0.5) > 0


@row("dropout.default", is_random=_drops, is_composed=True)
def dropout(x: Tensor, rate: float, train: bool, *, key: Tensor | None = None) -> Tensor:
    """x with elements replaced by 0 at a rate, the others scaled up."""
    return x if key is None else native_dropout(x, rate, train, key=key)[0]


@row("layer_norm.default", is_composed=True)
def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """x normalised along its last axes, scaled and shifted."""
    del cudnn_enable
    return native_layer_norm(x, shape, weight, bias, eps)[0]


@row("group_norm.default", is_composed=True)
def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """x normalised along groups of channels and space, scaled and shifted."""
    del cudnn_enabled
    return native_group_norm(x, weight, bias, x.shape[0], x.shape[1], 0, groups, eps)[0]


@row("split.Tensor", is_composed=True)
def split(x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    """x cut along an axis into parts of one size, the last of what is left."""
    sizes = [min(split_size, x.shape[dim] - start) for start in range(0, x.shape[dim], split_size)]
    return split_with_sizes(x, sizes, dim)


@row("chunk.default", is_composed=True)
def chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """x cut along an axis into so many parts, or fewer, of one size."""
    return split(x, max(1, -(-x.shape[dim] // chunks)), dim)


def _in_type(name: str) -> Callable[..., Tensor]:
    def apply(x: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
        result: Tensor = TABLE[name].function(x if dtype is None else ops.convert(x, dtype), dim)
        return result

    return apply


row("softmax.int", is_composed=True)(_in_type("_softmax.default"))
row("log_softmax.int", is_composed=True)(_in_type("_log_softmax.default"))


def _is_of_numbers(node: Any) -> bool:
    """Whether a loss is of classes by number, neither smoothed nor of several axes, which are joined elsewhere."""
    numbers = not node.args[1].meta["val"].dtype.is_floating_point
    return numbers and _rank(node) in (1, 2, 4) and not _said(node, 5, "label_smoothing", 0.0)


@row("cross_entropy_loss.default", is_composed=_is_of_numbers)
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the logarithms of softmax at the targets."""
    del label_smoothing
    logarithms = ops.convert(log_softmax(wide(x), 1 if x.ndim > 1 else 0), x.dtype)
    return nll_loss(logarithms, target, weight, reduction, ignore_index)[0]


@row("pad.default", is_composed=lambda node: _said(node, 2, "mode", "constant") == "constant")
def pad(x: Tensor, widths: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """A constant around x."""
    del mode
    return pad_constant(x, widths, value or 0)


@row("masked_fill.Scalar", knows_result=True, is_composed=True)
def masked_fill(x: Tensor, mask: Tensor, value: TensorLike, *, result: TensorSpec) -> Tensor:
    """A number where a mask holds, else x."""
    return where(mask, ops.full((), value, result.dtype), x, result=result)


@row("where.Scalar", "where.ScalarOther", "where.ScalarSelf", knows_result=True, is_composed=True)
def choice(condition: Tensor, x: TensorLike, y: TensorLike, *, result: TensorSpec) -> Tensor:
    """x where the condition holds, else y, of which one is a number."""
    first, second = (
        each if isinstance(each, Tensor) else ops.full((), each, result.dtype) for each in (x, y)
    )
    return where(condition, first, second, result=result)


for _name, _same in {"max.other": "maximum.default", "min.other": "minimum.default"}.items():
    row(_name, promotion="default", is_composed=True)(TABLE[_same].function)


def _convolution(
    x: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
) -> Tensor:
    """A convolution, with a bias for each channel of the result."""
    return convolution(x, kernel, bias, stride, padding, dilation, False, (0,) * (x.ndim - 2), groups)


row("conv1d.default", is_composed=lambda node: _rank(node) == 3)(_convolution)
row("conv2d.default", is_composed=lambda node: _rank(node) == 4)(_convolution)


@row("diff.default", is_composed=lambda node: _said(node, 1, "n", 1) == 1)
def diff(
    x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Each element along an axis less the one before it; of booleans whether they differ."""
    del n
    parts = [part for part in (prepend, x, append) if part is not None]
    whole = ops.concatenate(parts, dim) if len(parts) > 1 else x
    after, before = narrow(whole, dim, 1), narrow(whole, dim, 0, whole.shape[dim] - 1)
    return ops.bitwise_xor(after, before) if whole.dtype is DType.bool else after - before
