"""`pcp.value_and_grad` and `pcp.grad`: of a Program, gradients that are zero in exact arithmetic are zero on every path."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pcp import autodiff
from pcp.ir import Program
from pcp.rewrite.softmax_shifts import with_constant_shifts
from pcp.rewrite.vanishing import without_vanishing_sums

_Differentiate = TypeVar("_Differentiate", bound=Callable[..., Any])


def _with_zeros(differentiate: _Differentiate) -> _Differentiate:
    @functools.wraps(differentiate)
    def gradient(function: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(function, Program):
            return differentiate(function, *arguments, **options)
        return without_vanishing_sums(differentiate(with_constant_shifts(function), *arguments, **options))

    return cast("_Differentiate", gradient)


value_and_grad = _with_zeros(autodiff.value_and_grad)
grad = _with_zeros(autodiff.grad)
