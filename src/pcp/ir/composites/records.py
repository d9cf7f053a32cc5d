"""The records of PCP's own composites: what is known about each stands here once, and the rest follows from it.

From a record follow the check of attributes, what `pcp.vmap` makes of it, its rule of differentiation, and whether a gradient
is kept apart from it. What a composite computes is its function, which a program holds: that which `form` writes, or the plain
form in a program of other origin, which `pattern` finds. Rules that need an engine stand with it, and are chosen by the record.

To add one, declare it here, write its form or pattern, and give it a row in `tests/composites/rows.py`.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

GRADIENT = ".vjp"
"""What the name of a composite's gradient ends with."""


class Axes(StrEnum):
    """Attributes that say axes: one more axis before the others, that of samples, changes them."""

    axis = "the number of an axis of the first operand"
    of_scores = "the number of an axis of the scores"
    names = "what each axis of the operand or result of that name is called; below 0 where the scores do not have it"

    @property
    def type(self) -> type:
        """Of the attribute."""
        return tuple if self is Axes.names else int


Kind = type | Axes


class Gradient(StrEnum):
    """What the gradient of a composite is."""

    whole = "the composite NAME.vjp"
    own_rule = "that of a rule in `pcp.autodiff.rules.composites`"
    written_out = "that of what it is made of"


class Samples(StrEnum):
    """What a composite for many samples is, where all operands that it always has have samples."""

    renamed = "NAME.batched"
    further_alike = "the same, if further operands have none"
    further_too = "the same, and further operands may have them, too"


Shapes = Sequence[tuple[int, ...]]

Demand = tuple[bool, str, str]
"""Whether it holds, the attribute, and what is expected of that."""


def _nothing(_: Mapping[str, Any]) -> Iterator[Demand]:
    return iter(())


def _no_shifts(_: Mapping[str, Any], __: int) -> Mapping[str, Collection[int]]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeRecord:
    """What PCP knows about one of its composites.

    Arguments:
        name: `pcp.softmax`.
        operands: that it always has.
        further: those that may follow, in their order.
        attributes: that it always has.
        sometimes: those that it may have besides.
        demands: what must hold between attributes whose types are right.
        gradient, samples: of which kind its gradient is, and what it is for many samples.
        shifts: by operand, the axes along all of which one number may be added and no result changes, from attributes and the
            rank of the operand: its gradient adds up to 0 along them.
        makes: from attributes and the shapes of its operands, how many numbers it makes at once, where that may be far more
            than it takes and returns; its gradient makes them again.
        form: the module that writes it; empty where it is only found.
        pattern: the module whose rows find its plain form; empty where it is only written.
    """

    name: str
    operands: tuple[str, ...]
    further: tuple[str, ...] = ()
    attributes: Mapping[str, Kind] = field(default_factory=dict)
    sometimes: Mapping[str, Kind] = field(default_factory=dict)
    demands: Callable[[Mapping[str, Any]], Iterator[Demand]] = _nothing
    gradient: Gradient = Gradient.whole
    samples: Samples = Samples.renamed
    shifts: Callable[[Mapping[str, Any], int], Mapping[str, Collection[int]]] = _no_shifts
    makes: Callable[[Mapping[str, Any], Shapes], int] | None = None
    form: str = ""
    pattern: str = ""

    @property
    def gradient_name(self) -> str:
        """Of the composite that its gradient is."""
        return self.name + GRADIENT

    @property
    def is_large_inside(self) -> bool:
        """Whether it may make far more than it takes and returns."""
        return self.makes is not None

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """The kinds of all attributes."""
        return {**self.attributes, **self.sometimes}


COMPOSITES: dict[str, CompositeRecord] = {}
"""Every record by the name of its composite."""


def _declare(name: str, *operands: str, **fields: Any) -> CompositeRecord:
    record = COMPOSITES[name] = CompositeRecord(name=name, operands=operands, **fields)
    return record


def _of_attention(attributes: Mapping[str, Any]) -> Iterator[Demand]:
    yield (
        not attributes["causal"] or {"queries", "offset"} <= attributes.keys(),
        "causal",
        "`queries` and `offset`, too",
    )
    for key in ("query_lengths", "key_lengths"):
        yield key not in attributes or "queries" in attributes, key, "`queries`, too"
    yield 0 < attributes.get("cap", 1) < math.inf, "cap", "a finite number above 0"
    sees_some = attributes.get("window", 1) > 0 and (attributes["causal"] or "window" not in attributes)
    yield sees_some, "window", "1 or more keys, and `causal`, too"
    hides = attributes["causal"] or not attributes.keys().isdisjoint(("mask", "query_lengths", "key_lengths"))
    yield not hides or "fill" in attributes, "fill", "the score of a key that is not seen"


def _scores(attributes: Mapping[str, Any], shapes: Shapes) -> int:
    sizes = {
        axis: size
        for key, shape in zip(("query", "key"), shapes, strict=False)
        for axis, size in zip(attributes[key], shape, strict=True)
        if axis >= 0
    }
    return math.prod(sizes.values())


def _shifts_of_attention(attributes: Mapping[str, Any], _: int) -> Mapping[str, Collection[int]]:
    along = [place for place, axis in enumerate(attributes["key"]) if axis == attributes["axis"]]
    return {} if "cap" in attributes else {"key": along}


_OPS, _NN, _RAISING = "pcp.ops", "pcp.nn", "pcp.rewrite.raising"
_NORM: dict[str, Any] = {
    "attributes": {"axis": Axes.axis, "epsilon": float, "scale": bool, "bias": bool},
    "samples": Samples.further_alike,
    "form": f"{_NN}.normalization",
    "pattern": f"{_RAISING}.normalisation",
}
_SOFTMAX: dict[str, Any] = {
    "attributes": {"axis": Axes.axis},
    "shifts": lambda attributes, _: {"x": (attributes["axis"],)},
    "samples": Samples.further_alike,
    "form": f"{_OPS}.normalizing",
    "pattern": f"{_RAISING}.softmax",
}

SOFTMAX = _declare("pcp.softmax", "x", **_SOFTMAX)
LOG_SOFTMAX = _declare("pcp.log_softmax", "x", **_SOFTMAX)
LOG_SUM_EXP = _declare(
    "pcp.log_sum_exp",
    "x",
    attributes={"axis": Axes.axis},
    samples=Samples.further_alike,
    makes=lambda _, shapes: math.prod(shapes[0]),
    pattern=f"{_RAISING}.softmax",
)
LAYER_NORM = _declare("pcp.layer_norm", "x", further=("scale", "bias"), shifts=_SOFTMAX["shifts"], **_NORM)
RMS_NORM = _declare("pcp.rms_norm", "x", further=("scale", "bias"), **_NORM)
BATCH_NORM = _declare(
    "pcp.batch_norm",
    *("x", "scale", "bias"),
    attributes={"axis": Axes.axis, "epsilon": float, "relu": str},
    shifts=lambda attributes, rank: {"x": [axis for axis in range(rank) if axis != attributes["axis"]]},
    pattern=f"{_RAISING}.normalisation",
)
ACTIVATION = _declare(
    "pcp.activation",
    "x",
    attributes={"function": str},
    samples=Samples.further_alike,
    pattern=f"{_RAISING}.activations",
)
MAX_POOL = _declare(
    "pcp.max_pool",
    "x",
    attributes={"sizes": tuple, "strides": tuple, "before": tuple},
    pattern=f"{_RAISING}.pooling",
)
ATTENTION = _declare(
    "pcp.attention",
    *("query", "key", "value"),
    further=("mask", "bias", "query_lengths", "key_lengths"),
    attributes={
        **dict.fromkeys(("query", "key", "value", "result"), Axes.names),
        "axis": Axes.of_scores,
        "scale": float,
        "causal": bool,
    },
    sometimes={
        **dict.fromkeys(("mask", "bias", "query_lengths", "key_lengths"), Axes.names),
        "queries": Axes.of_scores,
        "offset": int,
        "window": int,
        "fill": float,
        "safe": bool,
        "cap": float,
    },
    demands=_of_attention,
    shifts=_shifts_of_attention,
    samples=Samples.further_too,
    makes=_scores,
    form=f"{_NN}.attention",
    pattern=f"{_RAISING}.attention",
)
QUANTISED_PRODUCT = _declare(
    "pcp.quantised_product",
    *("x", "values"),
    further=("scales",),
    gradient=Gradient.written_out,
    form=f"{_OPS}.linear.stored",
)
DROPOUT = _declare(
    "pcp.dropout",
    *("key", "x"),
    attributes={"rate": float, "divides": bool},
    gradient=Gradient.own_rule,
    form=f"{_OPS}.dropping",
)
CROSS_ENTROPY = _declare(
    "pcp.cross_entropy",
    *("logits", "targets"),
    attributes={"axis": Axes.axis, "wraps": bool, "clamps": bool, "outside": float, "negated": bool},
    samples=Samples.further_alike,
    makes=lambda _, shapes: math.prod(shapes[0]),
    form=f"{_NN}.losses",
    pattern=f"{_RAISING}.cross_entropy",
)
