"""Keys that are repeated for several heads, as `repeat_kv` of transformers does, are read as keys of groups of heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pcp.composites.emission import emitted, traced
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_name, decomposition_of, known_attributes
from pcp.ir.composites.records import ATTENTION
from pcp.ops.movement import reshape, transpose
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.rewrite.pattern import defined_by, numbers, spec, tensor
from pcp.rewrite.row import Replacement, Row, exact
from pcp.tensor import Tensor, current_builder

Names = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A value, each of whose elements along an axis stands several times in a row there.

    Arguments:
        times: how often each stands.
        narrowed: the value as it is without the repetition.
    """

    times: int
    narrowed: Callable[[], Tensor]

    @classmethod
    def of(cls, value: Value, axis: int) -> "Repeated | None":
        """What a value repeats along an axis."""
        turned = defined_by(value, "transpose")
        if turned is not None:
            order = numbers(turned, "permutation")
            inner = cls.of(turned.operands[0], order[axis])
            return inner and cls(inner.times, lambda: transpose(inner.narrowed(), order))
        shape, wide = spec(value).shape, defined_by(value, "broadcast_in_dim")
        if wide is not None:  # one for all heads
            one, places = (*shape[:axis], 1, *shape[axis + 1 :]), numbers(wide, "broadcast_dimensions")
            rest = tuple(place for place in range(len(shape)) if place != axis or place in places)
            is_one = places == rest and spec(wide.operands[0]).shape == tuple(one[place] for place in places)
            return (
                cls(shape[axis], lambda: reshape(tensor(wide.operands[0]), one))
                if is_one and shape[axis] > 1
                else None
            )
        joined = defined_by(value, "reshape")
        spread = joined and defined_by(joined.operands[0], "broadcast_in_dim")
        if not spread:
            return None
        apart, old = (spec(each).shape for each in (spread.results[0], spread.operands[0]))
        times = apart[axis + 1] if len(apart) == len(shape) + 1 else 1
        narrow = (*apart[: axis + 1], *apart[axis + 2 :])
        places = numbers(spread, "broadcast_dimensions")
        kept = tuple(place for place in range(len(apart)) if place != axis + 1 or place in places)
        expected = tuple(1 if place == axis + 1 else apart[place] for place in places)
        is_joined = (*narrow[:axis], narrow[axis] * times, *narrow[axis + 1 :]) == shape
        if times < 2 or not is_joined or places != kept or old != expected:
            return None
        return cls(times, lambda: reshape(tensor(spread.operands[0]), narrow))

    def spread(self, x: Tensor, axis: int) -> Tensor:
        """A value without the repetition, repeated again."""
        wide = (*x.shape[: axis + 1], self.times, *x.shape[axis + 1 :])
        places = tuple(place for place in range(len(wide)) if place != axis + 1)
        return _joined(broadcast_in_dim(x, wide, places), axis)


def _grouped(op: ir.Operation) -> Replacement:
    if composite_name(op) != ATTENTION.name:
        return None
    attributes = known_attributes(op)
    for head in attributes["key"]:
        if head >= 0 and head in attributes["query"] and head in attributes["value"]:
            places = [attributes[kind].index(head) for kind in ("key", "value")]
            repeated = [
                Repeated.of(x, place) for x, place in zip(list(op.operands)[1:3], places, strict=True)
            ]
            key, value = repeated
            if key is not None and value is not None and key.times == value.times:
                return [_written(op, attributes, head, (key, value))]
    return None


def _written(
    op: ir.Operation, attributes: dict[str, Any], head: int, repeated: tuple[Repeated, Repeated]
) -> Tensor:
    """The same attention of keys and values that are not repeated; the heads of a group have an axis behind that of groups."""
    kinds = [*ATTENTION.operands, *(kind for kind in ATTENTION.further if kind in attributes)]
    times = repeated[0].times
    by_kind = dict(zip(("key", "value"), repeated, strict=True))

    def apart(kind: str, x: Tensor) -> Tensor:
        if kind in by_kind:
            return by_kind[kind].narrowed()
        if head not in attributes[kind]:
            return x
        place = attributes[kind].index(head)
        return reshape(x, (*x.shape[:place], x.shape[place] // times, times, *x.shape[place + 1 :]))

    def whole(kind: str, x: Tensor) -> Tensor:
        if head not in attributes[kind]:
            return x
        place = attributes[kind].index(head)
        return by_kind[kind].spread(x, place) if kind in by_kind else _joined(x, place)

    def renamed(kind: str) -> Names:
        names: list[int] = []
        for name in attributes[kind]:
            names += [head, head + 1] if name == head and kind not in by_kind else [name + (name > head)]
        return tuple(names)

    function = decomposition_of(op)

    def form(*operands: Tensor) -> Tensor:
        builder = current_builder()
        inside = [whole(kind, x).value for kind, x in zip(kinds, operands, strict=True)]
        (result,) = builder.inline(function, inside)
        return apart("result", Tensor(result, builder))

    further: dict[str, Any] = {kind: renamed(kind) for kind in (*kinds, "result")}
    further |= {key: n + (n > head) for key in ("axis", "queries") if (n := attributes.get(key)) is not None}
    operands = [apart(kind, tensor(x)) for kind, x in zip(kinds, op.operands, strict=True)]
    function_of_groups = traced(ATTENTION.name, form, [x.spec for x in operands], ATTENTION.name, is_own=True)
    result = emitted(ATTENTION.name, function_of_groups, operands, {**attributes, **further})
    return reshape(result, spec(op.results[0]).shape)


def _joined(x: Tensor, axis: int) -> Tensor:
    """An axis and the next one as one."""
    return reshape(x, (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


ROWS: tuple[Row, ...] = (exact("keys_of_groups", COMPOSITE.removeprefix("stablehlo."), _grouped),)
