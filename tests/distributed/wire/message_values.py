"""Random messages: for every message class, a hypothesis strategy derived from its annotations."""

import dataclasses
from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from pcp.distributed.wire.codec import CONTROL_ROWS, TRANSFER_ROWS

NARROW_FIELDS = {
    "protocol_version": 2**32 - 1,
    "fragment": 2**32 - 1,
    "fragments": 2**32 - 1,
    "code": 2**16 - 1,
}


def value_strategy(hint: Any, field: str) -> st.SearchStrategy[Any]:
    if dataclasses.is_dataclass(hint):
        return instance_strategy(hint)
    if get_origin(hint) is tuple:
        return st.lists(value_strategy(get_args(hint)[0], field), max_size=5).map(tuple)
    if NoneType in get_args(hint):
        (present,) = set(get_args(hint)) - {NoneType}
        return st.none() | value_strategy(present, field)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    return {
        int: st.integers(0, NARROW_FIELDS.get(field, 2**64 - 1)),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: st.text(max_size=40),
        bytes: st.binary(min_size=32, max_size=32) if field == "digest" else st.binary(max_size=40),
    }[hint]


def instance_strategy(struct: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(struct)
    return st.builds(
        struct,
        **{field.name: value_strategy(hints[field.name], field.name) for field in dataclasses.fields(struct)},
    )


control_messages = st.one_of([instance_strategy(struct) for struct in CONTROL_ROWS])
transfer_messages = st.one_of([instance_strategy(struct) for struct in TRANSFER_ROWS])
