"""Random messages: for every message class, a hypothesis strategy derived from its annotations."""

import dataclasses
import math
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from pcp.distributed.bounds import Many, Octets, Real, Text, Whole, Words, bound_of
from pcp.distributed.wire.codec import CONTROL_ROWS, TRANSFER_ROWS


def value_strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values within the bound of an annotation, often at its ends."""
    if NoneType in get_args(hint):
        (present,) = set(get_args(hint)) - {NoneType}
        return st.none() | value_strategy(present)
    bound = bound_of(hint)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if dataclasses.is_dataclass(hint):
        return instance_strategy(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    match bound:
        case None:
            return st.booleans()
        case Whole(most):
            return st.integers(0, most) | st.sampled_from([0, 1, most])
        case Real(_, least, most, signed, infinite):
            sizes = st.floats(least, most) | st.sampled_from([0.0, least, most])
            signs = st.sampled_from([1.0, -1.0] if signed else [1.0])
            finite = st.builds(lambda size, sign: size * sign, sizes, signs)
            return finite | st.just(math.inf) if infinite else finite
        case Words(letters) | Text(letters):
            return st.text(max_size=min(letters, 40))
        case Octets(_, least, most):
            return st.binary(min_size=least, max_size=min(most, max(least, 40)))
        case Many(most):
            return st.lists(value_strategy(get_args(hint)[0]), max_size=min(most, 5)).map(tuple)
        case _:
            raise TypeError(f"no values for {hint}")


def instance_strategy(struct: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(struct, include_extras=True)
    return st.builds(
        struct, **{field.name: value_strategy(hints[field.name]) for field in dataclasses.fields(struct)}
    )


control_messages = st.one_of([instance_strategy(struct) for struct in CONTROL_ROWS])
transfer_messages = st.one_of([instance_strategy(struct) for struct in TRANSFER_ROWS])
