"""Minimum cuts, against all cuts of small networks."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pcp.autodiff.rematerialisation.min_cut import Network

ARCS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), max_size=14)


@given(ARCS)
def test_no_cut_is_smaller(arcs: list[tuple[int, int, int]]) -> None:
    def size(behind: set[int]) -> int:
        return sum(room for tail, head, room in arcs if tail not in behind and head in behind)

    network = Network()
    network.connect(0, 5, 0)
    for tail, head, room in arcs:
        network.connect(tail, head, room)
    found = {node for node in network.behind_cut(0, 5) if isinstance(node, int)}
    cuts = [{5, *inner} for n in range(5) for inner in itertools.combinations(range(1, 5), n)]
    least = min(map(size, cuts))
    assert 0 not in found
    assert 5 in found
    assert size(found) == least
    # The one nearest to the sink is within every other.
    assert all(found <= cut for cut in cuts if size(cut) == least)
