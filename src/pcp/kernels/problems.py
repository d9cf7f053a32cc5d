"""Problems: what kernels compute, each a region with what its operands may be, to judge and to measure kernels on.

A family has forms, which differ in attributes, and sizes with names: from them come plain programs of many sizes. The
attributes of a family's problem are what a kernel from outside is told by keyword. A region of a program is a problem as
well, at its very shapes.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.errors import PCPError
from pcp.ir import DType, Program, TensorSpec
from pcp.ops.elementwise import equal, greater_equal, rsqrt, where
from pcp.ops.indexing.updating import scatter_add
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import expand_dims, iota, transpose, zeros
from pcp.ops.normalizing import logsumexp, softmax
from pcp.ops.reductions.primitives import mean, sum_
from pcp.tensor import Tensor
from pcp.tracing import spec, trace

Sizes = Mapping[str, int]
Attributes = Mapping[str, Any]


class UnknownProblem(PCPError):
    """A family, form or size that there are no problems of."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a family computes.

    Arguments:
        operands: their names, in order.
        forms: attributes by the name of the form.
        sizes: the names of the sizes.
        shapes: the shape of every operand for a form and sizes.
        function: the plain computation on Tensors, with the attributes by keyword.
        standard: sizes of the problems that every kernel is tried on: single elements, odd ones, and whole blocks.
        large: sizes to measure time at.
        wide: sizes around powers of two, long sums, and sizes of GPT-2, the largest last. They are tried on few
            kinds of values.
        integers: which operands are integers.
        told: names of sizes that are attributes, too.
    """

    operands: tuple[str, ...]
    forms: Mapping[str, Attributes]
    sizes: tuple[str, ...]
    shapes: Callable[[str, Sizes], Sequence[tuple[int, ...]]]
    function: Callable[..., Tensor]
    standard: tuple[tuple[int, ...], ...]
    large: tuple[int, ...]
    wide: tuple[tuple[int, ...], ...]
    integers: tuple[int, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to compute: a form of a family at fixed sizes, or a region of a program.

    Arguments:
        family: of kernels.
        form: which of its forms; empty for a region.
        sizes: by name; none for a region.
        dtype: element type of the floating-point operands and the result.
        more: attributes that differ from the form's.
        region: of a program, alone; None for a form of the family.
    """

    family: str
    form: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    dtype: DType = DType.f32
    more: tuple[tuple[str, Any], ...] = ()
    region: Program | None = None

    @property
    def definition(self) -> Definition:
        """What its family computes."""
        return DEFINITIONS[self.family]

    @property
    def attributes(self) -> dict[str, Any]:
        """What a kernel is told by keyword."""
        if self.region is not None:
            return {}
        sizes = dict(self.sizes)
        told = {name: sizes[name] for name in self.definition.told}
        return {**self.definition.forms[self.form], **told, **dict(self.more)}

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Shapes and element types of the operands."""
        if self.region is not None:
            return tuple(entry.spec for entry in self.region.arguments)
        shapes = self.definition.shapes(self.form, dict(self.sizes))
        return tuple(
            TensorSpec(shape, DType.i32 if place in self.definition.integers else self.dtype)
            for place, shape in enumerate(shapes)
        )

    @property
    def size(self) -> int:
        """Elements of all operands."""
        return sum(spec.size for spec in self.specs)

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """Shapes and element types of the results."""
        return _results_of(self)

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The places of the floating-point operands."""
        return tuple(place for place, spec in enumerate(self.specs) if spec.dtype.is_differentiable)

    def reference(self) -> Program:
        """The plain program; the arguments of one of a family have the names of the operands."""
        if self.region is not None:
            return self.region
        function = functools.partial(self.definition.function, **self.attributes)
        return trace(function, *(spec(each.shape, each.dtype) for each in self.specs))

    def __str__(self) -> str:
        if self.region is not None:
            return "its region"
        pairs = zip(self.definition.operands, self.specs, strict=False)
        return f"{self.family} ({self.form}): {', '.join(f'{name} {each}' for name, each in pairs)}"


@functools.lru_cache(maxsize=64)
def _results_of(of: Problem) -> tuple[TensorSpec, ...]:
    return tuple(entry.spec for entry in of.reference().results)


@dataclass(frozen=True, slots=True)
class Limits:
    """Which values of a size a kernel is for."""

    multiple_of: int = 1
    at_least: int = 1
    at_most: int | None = None

    def allow(self, size: int) -> bool:
        """Whether a size is one of them."""
        return self.nearest(size) == size

    def nearest(self, size: int) -> int:
        """An allowed size near another."""
        size = max(size, self.at_least)
        size += -size % self.multiple_of
        if self.at_most is not None and size > self.at_most:
            size = self.at_most - self.at_most % self.multiple_of
        return size


def problem(
    family: str,
    form: str | None = None,
    dtype: DType = DType.f32,
    sizes: Sizes | None = None,
    **attributes: float,
) -> Problem:
    """One problem of a family.

    Arguments:
        form: None takes the family's first.
        dtype: of the floating-point operands.
        sizes: by name, all of them; None takes those that time is measured at.
        attributes: that may differ from the form's, by more than a rounding of float32.

    Raises:
        UnknownProblem: there is no such family, form or size.
    """
    definition = definition_of(family)
    form = next(iter(definition.forms)) if form is None else form
    if not isinstance(form, str) or form not in definition.forms:
        raise UnknownProblem(
            f"family {family!r} does not have the form {form!r}; it has {', '.join(definition.forms)}"
        )
    size_of = dict(zip(definition.sizes, definition.large, strict=True)) if sizes is None else dict(sizes)
    if set(size_of) != set(definition.sizes) or any(type(n) is not int or n < 1 for n in size_of.values()):
        raise UnknownProblem(
            f"sizes {size_of} were given for family {family!r}; expected a positive integer for each of "
            f"{', '.join(definition.sizes)}"
        )
    usual = definition.forms[form]
    more = tuple(
        each for each in attributes.items() if not math.isclose(each[1], usual[each[0]], rel_tol=1e-6)
    )
    return Problem(family, form, tuple((name, size_of[name]) for name in definition.sizes), dtype, more)


def problem_of(family: str, region: Program) -> Problem:
    """The problem that a region of a program is."""
    specs = [*(entry.spec for entry in region.arguments), *(entry.spec for entry in region.results)]
    dtype = next((each.dtype for each in specs if each.dtype.is_float), DType.f32)
    return Problem(family, dtype=dtype, region=region)


def definition_of(family: str) -> Definition:
    """What a family computes.

    Raises:
        UnknownProblem: there is no such family.
    """
    if family not in DEFINITIONS:
        raise UnknownProblem(f"there is no family {family!r}; choose one of {', '.join(DEFINITIONS)}")
    return DEFINITIONS[family]


def problems_of(family: str, forms: Sequence[str] | None = None, dtype: DType = DType.f32) -> list[Problem]:
    """The standard problems of a family: every size in the first of the forms, some of them in the others.

    Raises:
        UnknownProblem: there is no such family or form.
    """
    standard = definition_of(family).standard
    return _problems(family, forms, dtype, standard, (standard[0], *standard[4::4]))


def wide_problems_of(
    family: str, forms: Sequence[str] | None = None, dtype: DType = DType.f32
) -> list[Problem]:
    """The wide problems of a family, the smallest first: every size in the first of the forms, the first in the others.

    Raises:
        UnknownProblem: there is no such family or form.
    """
    wide = definition_of(family).wide
    problems = _problems(family, forms, dtype, wide, wide[:1])
    return sorted(problems, key=lambda each: each.size)


def _problems(
    family: str, forms: Sequence[str] | None, dtype: DType, first: Sequence[Any], others: Sequence[Any]
) -> list[Problem]:
    """Problems of some sizes in the first of the forms, and of some in the others."""
    definition = definition_of(family)
    return [
        problem(family, form, dtype, dict(zip(definition.sizes, sizes, strict=True)))
        for rank, form in enumerate(forms or definition.forms)
        for sizes in (others if rank else first)
    ]


_AXES: dict[str, tuple[str, str]] = {
    "plain": ("mk", "kn"),
    "left_transposed": ("km", "kn"),
    "right_transposed": ("mk", "nk"),
    "batched": ("bmk", "bkn"),
}


def _product_form(left: str, right: str) -> Attributes:
    batch = ((0,), (0,)) if "b" in left else ((), ())
    return {"contract": ((left.index("k"),), (right.index("k"),)), "batch": batch}


def _product(x: Tensor, y: Tensor, contract: Any, batch: Any) -> Tensor:
    return dot_general(x, y, contract, batch)


def _normalisation(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: float, centred: bool
) -> Tensor:
    values = x - mean(x, -1, keepdims=True) if centred else x
    normed = values * rsqrt(mean(values * values, -1, keepdims=True) + epsilon) * scale
    return normed if bias is None else normed + bias


def _attention(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    width, queries, keys = query.shape[3], query.shape[1], key.shape[1]
    scores = dot_general(query, key, ((3,), (3,)), ((0, 2), (0, 2))) * (1 / math.sqrt(width))
    if causal:
        visible = greater_equal(iota((queries, keys), 0) + (keys - queries), iota((queries, keys), 1))
        scores = where(visible, scores, -math.inf)
    return transpose(dot_general(softmax(scores), value, ((3,), (1,)), ((0, 1), (0, 2))), 0, 2, 1, 3)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    chosen = equal(iota(logits.shape, logits.ndim - 1, targets.dtype), expand_dims(targets, targets.ndim))
    return logsumexp(logits, -1) - sum_(where(chosen, logits, 0), -1)


def _embedding_gradient(indices: Tensor, updates: Tensor, rows: int) -> Tensor:
    return scatter_add(zeros((rows, updates.shape[1]), updates.dtype), indices, updates)


def _sizes(text: str) -> tuple[tuple[int, ...], ...]:
    """Sizes as they are written: one problem's are joined by x."""
    return tuple(tuple(map(int, each.split("x"))) for each in text.split())


DEFINITIONS: dict[str, Definition] = {
    "product": Definition(
        operands=("x", "y"),
        forms={name: _product_form(*axes) for name, axes in _AXES.items()},
        sizes=("b", "m", "k", "n"),
        shapes=lambda form, sizes: [tuple(sizes[axis] for axis in axes) for axes in _AXES[form]],
        function=_product,
        standard=_sizes(
            "2x32x64x32 1x1x1x1 3x7x13x5 2x64x128x96 2x33x65x31 1x1x257x3 2x128x1x64 3x65x96x127 "
            "1x17x1025x19 2x128x512x128 1x2051x8x9"
        ),
        large=(4, 256, 512, 256),
        wide=_sizes(
            "2x768x768x3072 1x127x129x255 1x257x511x513 1x5x50257x7 1x3x1048577x2 1x1025x64x1024 "
            "1x9x8x50257 1x50257x8x9 1x768x3072x3072 1x768x768x50257"
        ),
    ),
    "softmax": Definition(
        operands=("x",),
        forms={"last_axis": {"axis": 1}, "first_axis": {"axis": 0}},
        sizes=("rows", "columns"),
        shapes=lambda form, sizes: [(sizes["rows"], sizes["columns"])],
        function=softmax,
        standard=_sizes("64x128 1x1 7x13 128x64 33x65 1x257 257x2 31x1023 256x256 4099x8"),
        large=(512, 1024),
        wide=_sizes("129x127 2x2049 8193x3 1x1048577 1031x1021 64x50257 12288x1024"),
    ),
    "normalisation": Definition(
        operands=("x", "scale", "bias"),
        forms={"layer": {"epsilon": 1e-5, "centred": True}, "rms": {"epsilon": 1e-6, "centred": False}},
        sizes=("rows", "width"),
        shapes=lambda form, sizes: [
            (sizes["rows"], sizes["width"]),
            *[(sizes["width"],)] * (2 if form == "layer" else 1),
        ],
        function=_normalisation,
        standard=_sizes("64x128 1x2 7x13 128x64 33x65 1x257 257x3 31x1023 256x256 4099x8"),
        large=(512, 768),
        wide=_sizes("129x127 2x2049 1025x768 3x50257 2x1048577 2049x768 8192x768"),
    ),
    "attention": Definition(
        operands=("query", "key", "value"),
        forms={"full": {"causal": False}, "causal": {"causal": True}},
        sizes=("batch", "queries", "keys", "heads", "width"),
        shapes=lambda form, sizes: [
            (sizes["batch"], sizes[length], sizes["heads"], sizes["width"])
            for length in ("queries", "keys", "keys")
        ],
        function=_attention,
        standard=_sizes(
            "1x32x32x2x16 1x1x1x1x1 2x7x13x3x5 1x64x64x2x32 1x33x65x1x8 1x1x129x2x16 1x31x31x3x7 "
            "2x64x128x1x16"
        ),
        large=(1, 256, 256, 4, 64),
        wide=_sizes("1x127x257x2x64 1x1x1025x2x64 1x1024x1024x12x64"),
    ),
    "cross_entropy": Definition(
        operands=("logits", "targets"),
        forms={"plain": {}},
        sizes=("rows", "classes"),
        shapes=lambda form, sizes: [(sizes["rows"], sizes["classes"]), (sizes["rows"],)],
        function=_cross_entropy,
        standard=_sizes("64x128 1x2 7x13 128x64 65x33 3x257 257x5 101x1023 256x256 4099x8"),
        large=(512, 4096),
        wide=_sizes("129x127 8193x3 2x50257 3x1048577 257x50257"),
        integers=(1,),
    ),
    "embedding_gradient": Definition(
        operands=("indices", "updates"),
        forms={"plain": {}},
        sizes=("count", "rows", "width"),
        shapes=lambda form, sizes: [(sizes["count"],), (sizes["count"], sizes["width"])],
        function=_embedding_gradient,
        standard=_sizes("64x32x32 1x1x1 13x7x5 128x64x64 65x33x31 257x2x3 5x101x17 128x128x64"),
        large=(1024, 512, 128),
        wide=_sizes("129x3x127 5000x3x8 8193x257x5 1025x2x768 1024x50257x64 4096x50257x768"),
        integers=(0,),
        told=("rows",),
    ),
}
"""What every family computes."""
