"""Nested values of every kind that a traced function may take, for property tests."""

from collections import namedtuple

from hypothesis import strategies as st

Pair = namedtuple("Pair", ["left", "right"])

values = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=15,
)
