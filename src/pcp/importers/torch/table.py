"""The table of PyTorch's operations: for each ATen operation a function of Tensors that computes the same.

Whatever stands in the table is kept whole when a module is exported; PyTorch itself decomposes the rest into rows of it. Where
nothing is left to decompose, what PyTorch composes of several rows is kept whole, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Promotion = Literal["default", "int_to_float", "bool"]
"""How the operands of an elementwise operation meet in one element type: as `torch.result_type` says; the same, but integers
become floating-point; the same, but the result is boolean."""


@dataclass(frozen=True, slots=True)
class Row:
    """How one ATen operation is computed.

    Arguments:
        function: takes what the operation takes: Tensors, numbers, lists, and element types as `DType`. Devices, layouts
            and memory formats are left out. What it returns is converted to the element type that PyTorch's result has.
        promotion: for an elementwise operation, in which element type its Tensors are given.
        knows_result: whether the function takes `result`, the `TensorSpec` of what PyTorch's returns; if that is several
            tensors, a tuple with None for those that nothing uses.
        is_random: whether the function takes `key`, of which every call gets another one; or what says it of a node.
        is_contiguous: whether the first Tensor must lie in memory in one piece, alone, as the operation looks at its strides.
        is_composed: whether PyTorch decomposes the operation into other rows; or what says of a node whether this row computes
            it, too.
    """

    function: Callable[..., Any]
    promotion: Promotion | None = None
    knows_result: bool = False
    is_random: bool | Callable[[Any], bool] = False
    is_contiguous: bool = False
    is_composed: bool | Callable[[Any], bool] = False

    def draws(self, node: Any) -> bool:
        """Whether a node of this operation draws random numbers."""
        return self.is_random(node) if callable(self.is_random) else self.is_random

    def computes(self, node: Any) -> bool:
        """Whether it computes a node of this operation as that was exported."""
        return not callable(self.is_composed) or self.is_composed(node)


TABLE: dict[str, Row] = {}
"""Every row by the name of its operation with the overload: `add.Tensor`."""

IGNORED = (
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)
"""How the names of operations begin that compute nothing."""

_F = TypeVar("_F", bound=Callable[..., Any])


def row(
    *names: str,
    promotion: Promotion | None = None,
    knows_result: bool = False,
    is_random: bool | Callable[[Any], bool] = False,
    is_contiguous: bool = False,
    is_composed: bool | Callable[[Any], bool] = False,
) -> Callable[[_F], _F]:
    """Enter a function in the table under the names of the operations that it computes."""

    def enter(function: _F) -> _F:
        for name in names:
            TABLE[name] = Row(function, promotion, knows_result, is_random, is_contiguous, is_composed)
        return function

    return enter


def rows(functions: Mapping[str, Callable[..., Any]], promotion: Promotion | None = None) -> None:
    """Enter several functions; a key may name several operations, separated by spaces."""
    for names, function in functions.items():
        row(*names.split(), promotion=promotion)(function)
