"""Problems: what each family of kernels computes, as plain programs of many sizes, to judge and to measure kernels on.

A family has forms, which differ in attributes, and sizes with names. The attributes of a problem are what a kernel from outside
is told by keyword.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
        integers: which operands are integers, and the name of the size that they are below.
        scales: factors that make the values of floating-point operands large, and small.
        offset: a mean of values beside which their spread is small.
        wide: sizes around powers of two, long sums, and sizes of GPT-2, the largest last. They are tried on few
            kinds of values.
        normwise: whether methods are sound whose error is bounded on the scale of all of the result, as Strassen's, and not on
            that of each element.
    """

    operands: tuple[str, ...]
    forms: Mapping[str, Attributes]
    sizes: tuple[str, ...]
    shapes: Callable[[str, Sizes], Sequence[tuple[int, ...]]]
    function: Callable[..., Tensor]
    standard: tuple[tuple[int, ...], ...]
    large: tuple[int, ...]
    integers: Mapping[int, str] = field(default_factory=dict)
    scales: tuple[float, float] = (2.0**30, 2.0**-30)
    offset: float = 8.0
    wide: tuple[tuple[int, ...], ...] = ()
    normwise: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to compute: a form of a family at fixed sizes.

    Arguments:
        family: of kernels.
        form: which of its forms.
        sizes: by name.
        dtype: element type of the floating-point operands and the result.
    """

    family: str
    form: str
    sizes: tuple[tuple[str, int], ...]
    dtype: DType = DType.f32

    @property
    def definition(self) -> Definition:
        """What its family computes."""
        return DEFINITIONS[self.family]

    @property
    def attributes(self) -> dict[str, Any]:
        """What a kernel is told by keyword."""
        made = dict(self.definition.forms[self.form])
        if self.family == "embedding_gradient":
            made["rows"] = dict(self.sizes)["rows"]
        return made

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Shapes and element types of the operands."""
        shapes = self.definition.shapes(self.form, dict(self.sizes))
        return tuple(
            TensorSpec(shape, DType.i32 if place in self.definition.integers else self.dtype)
            for place, shape in enumerate(shapes)
        )

    @property
    def ranges(self) -> dict[int, int]:
        """Operands of integers, and what their values are below."""
        return {place: dict(self.sizes)[name] for place, name in self.definition.integers.items()}

    def reference(self) -> Program:
        """The plain program, whose arguments have the names of the operands."""
        function = functools.partial(self.definition.function, **self.attributes)
        return trace(function, *(spec(each.shape, each.dtype) for each in self.specs))

    def __str__(self) -> str:
        shapes = ", ".join(
            f"{name} {each}" for name, each in zip(self.definition.operands, self.specs, strict=False)
        )
        return f"{self.family} ({self.form}): {shapes}"


def problem(
    family: str, form: str | None = None, dtype: DType = DType.f32, sizes: Sizes | None = None
) -> Problem:
    """One problem.

    Arguments:
        form: None takes the family's first.
        dtype: of the floating-point operands.
        sizes: by name, all of them; None takes those that time is measured at.

    Raises:
        UnknownProblem: there is no such family, form or size.
    """
    definition = definition_of(family)
    form = next(iter(definition.forms)) if form is None else form
    if form not in definition.forms:
        raise UnknownProblem(
            f"family {family!r} does not have the form {form!r}; it has {', '.join(definition.forms)}"
        )
    given = dict(zip(definition.sizes, definition.large, strict=True)) if sizes is None else dict(sizes)
    if set(given) != set(definition.sizes) or any(type(n) is not int or n < 1 for n in given.values()):
        raise UnknownProblem(
            f"sizes {given} were given for family {family!r}; expected a positive integer for each of "
            f"{', '.join(definition.sizes)}"
        )
    return Problem(family, form, tuple((name, given[name]) for name in definition.sizes), dtype)


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
    definition = definition_of(family)
    made = []
    for rank, form in enumerate(forms or definition.forms):
        chosen = definition.standard if rank == 0 else (definition.standard[0], *definition.standard[4::4])
        made += [
            problem(family, form, dtype, dict(zip(definition.sizes, each, strict=True))) for each in chosen
        ]
    return made


def wide_problems_of(
    family: str, forms: Sequence[str] | None = None, dtype: DType = DType.f32
) -> list[Problem]:
    """The wide problems of a family, the smallest first: every size in the first of the forms, the first in the others.

    Raises:
        UnknownProblem: there is no such family or form.
    """
    definition = definition_of(family)
    made = [
        problem(family, form, dtype, dict(zip(definition.sizes, each, strict=True)))
        for rank, form in enumerate(forms or definition.forms)
        for each in (definition.wide[:1] if rank else definition.wide)
    ]
    return sorted(made, key=lambda each: sum(spec.size for spec in each.specs))


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


DEFINITIONS: dict[str, Definition] = {
    "product": Definition(
        operands=("x", "y"),
        forms={name: _product_form(*axes) for name, axes in _AXES.items()},
        sizes=("b", "m", "k", "n"),
        shapes=lambda form, sizes: [tuple(sizes[axis] for axis in axes) for axes in _AXES[form]],
        function=_product,
        standard=(
            (2, 32, 64, 32),
            (1, 1, 1, 1),
            (3, 7, 13, 5),
            (2, 64, 128, 96),
            (2, 33, 65, 31),
            (1, 1, 257, 3),
            (2, 128, 1, 64),
            (3, 65, 96, 127),
            (1, 17, 1025, 19),
            (2, 128, 512, 128),
            (1, 2051, 8, 9),
        ),
        large=(4, 256, 512, 256),
        wide=(
            (2, 768, 768, 3072),
            (1, 127, 129, 255),
            (1, 257, 511, 513),
            (1, 5, 50257, 7),
            (1, 3, 1048577, 2),
            (1, 1025, 64, 1024),
            (1, 9, 8, 50257),
            (1, 50257, 8, 9),
            (1, 768, 3072, 3072),
            (1, 768, 768, 50257),
        ),
        normwise=True,
    ),
    "softmax": Definition(
        operands=("x",),
        forms={"last_axis": {"axis": 1}, "first_axis": {"axis": 0}},
        sizes=("rows", "columns"),
        shapes=lambda form, sizes: [(sizes["rows"], sizes["columns"])],
        function=softmax,
        standard=(
            (64, 128),
            (1, 1),
            (7, 13),
            (128, 64),
            (33, 65),
            (1, 257),
            (257, 2),
            (31, 1023),
            (256, 256),
            (4099, 8),
        ),
        large=(512, 1024),
        wide=((129, 127), (2, 2049), (8193, 3), (1, 1048577), (1031, 1021), (64, 50257), (12288, 1024)),
        scales=(100.0, 2.0**-30),
        offset=100.0,
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
        standard=(
            (64, 128),
            (1, 2),
            (7, 13),
            (128, 64),
            (33, 65),
            (1, 257),
            (257, 3),
            (31, 1023),
            (256, 256),
            (4099, 8),
        ),
        large=(512, 768),
        wide=((129, 127), (2, 2049), (1025, 768), (3, 50257), (2, 1048577), (2049, 768), (8192, 768)),
        scales=(2.0**20, 2.0**-20),
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
        standard=(
            (1, 32, 32, 2, 16),
            (1, 1, 1, 1, 1),
            (2, 7, 13, 3, 5),
            (1, 64, 64, 2, 32),
            (1, 33, 65, 1, 8),
            (1, 1, 129, 2, 16),
            (1, 31, 31, 3, 7),
            (2, 64, 128, 1, 16),
        ),
        large=(1, 256, 256, 4, 64),
        wide=((1, 127, 257, 2, 64), (1, 1, 1025, 2, 64), (1, 1024, 1024, 12, 64)),
        scales=(3.0, 2.0**-30),
        offset=2.0,
    ),
    "cross_entropy": Definition(
        operands=("logits", "targets"),
        forms={"plain": {}},
        sizes=("rows", "classes"),
        shapes=lambda form, sizes: [(sizes["rows"], sizes["classes"]), (sizes["rows"],)],
        function=_cross_entropy,
        standard=(
            (64, 128),
            (1, 2),
            (7, 13),
            (128, 64),
            (65, 33),
            (3, 257),
            (257, 5),
            (101, 1023),
            (256, 256),
            (4099, 8),
        ),
        large=(512, 4096),
        wide=((129, 127), (8193, 3), (2, 50257), (3, 1048577), (257, 50257)),
        integers={1: "classes"},
        scales=(100.0, 2.0**-30),
        offset=100.0,
    ),
    "embedding_gradient": Definition(
        operands=("indices", "updates"),
        forms={"plain": {}},
        sizes=("count", "rows", "width"),
        shapes=lambda form, sizes: [(sizes["count"],), (sizes["count"], sizes["width"])],
        function=_embedding_gradient,
        standard=(
            (64, 32, 32),
            (1, 1, 1),
            (13, 7, 5),
            (128, 64, 64),
            (65, 33, 31),
            (257, 2, 3),
            (5, 101, 17),
            (128, 128, 64),
        ),
        large=(1024, 512, 128),
        wide=(
            (129, 3, 127),
            (5000, 3, 8),
            (8193, 257, 5),
            (1025, 2, 768),
            (1024, 50257, 64),
            (4096, 50257, 768),
        ),
        integers={0: "rows"},
    ),
}
"""What every family computes."""
