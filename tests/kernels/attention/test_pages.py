"""Native attention over pages: keys and values are read through the table, and are those that a gather would bring."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp import Program, kernels
from pcp.models.paged import Chunk
from pcp.ops.linear.stored import FORMATS
from pcp.planning.paths.preparation import prepared
from tests.kernels.native.test_attention import ATTRIBUTES, FORWARD, refused

Arrays = dict[str, np.ndarray[Any, Any]]


class Rows(NamedTuple):
    """Rows of a batch, the second of which is idle if there are more than two; `shared` heads of keys, `width` pages each."""

    rows: int
    chunk: int
    width: int
    page: int
    heads: int
    shared: int
    features: int
    window: int | None = None

    def arrays(self, rng: np.random.Generator) -> Arrays:
        """What `Chunk` takes. What no row reads is infinite or NaN; pages are counted from the end, too."""
        pages = 1 + self.rows * self.width
        shape = (pages, self.page, self.shared, self.features)
        keys, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
        table = rng.permutation(np.arange(1, pages)).reshape(self.rows, self.width).astype(np.int32)
        lengths = rng.integers(self.chunk, self.width * self.page + 1, self.rows).astype(np.int32)
        count = np.full(self.rows, self.chunk, np.int32)
        for row in range(self.rows):
            for place in range(lengths[row], self.width * self.page):
                at = table[row, place // self.page], place % self.page
                keys[at], values[at] = np.inf, np.nan
        if self.rows > 2:
            lengths[1] = count[1] = table[1] = 0
        table[0, 0] -= pages
        query = rng.normal(size=(self.rows, self.chunk, self.heads, self.features)).astype(np.float32)
        return {
            "query": query, "key": keys, "value": values, "start": lengths - count, "count": count, "table": table
        }  # fmt: skip

    def attended(self, given: dict[str, Any]) -> Any:
        """Attention as models compute it."""
        tokens = np.zeros((self.rows, self.chunk), np.int32)
        chunk = Chunk.of(tokens, given["start"], given["count"], given["table"])
        return chunk.attended(given["query"], given, self.window)

    def exactly(self, given: Arrays) -> np.ndarray[Any, Any]:
        """The same in float64, row by row; zeros of idle rows."""
        found = np.zeros(given["query"].shape)
        for row, token in np.ndindex(self.rows, self.chunk):
            last = given["start"][row] + token + 1
            first = 0 if self.window is None else max(0, last - self.window)
            for head in range(self.heads if given["count"][row] else 0):
                keys, values = (
                    given[kind][given["table"][row]].reshape(-1, self.shared, self.features)[
                        first:last, head * self.shared // self.heads
                    ]
                    for kind in ("key", "value")
                )
                scores = keys.astype(np.float64) @ given["query"][row, token, head] / np.sqrt(self.features)
                weights = np.exp(scores - scores.max())
                found[row, token, head] = weights / weights.sum() @ values
        return found


PROBLEMS = [
    Rows(1, 1, 8, 16, 2, 2, 32),
    Rows(8, 1, 5, 16, 3, 3, 64),
    Rows(3, 4, 5, 7, 4, 1, 20),
    Rows(2, 1, 8, 16, 4, 2, 24, window=20),
    Rows(1, 8, 3, 4, 2, 2, 8, window=5),
    Rows(4, 1, 2, 3, 6, 2, 40, window=2),
    Rows(1, 1, 1, 16, 1, 1, 8),
]
MANY = Rows(2, 9, 3, 8, 2, 2, 8)


def by(program: Program, storage: str = "") -> Program:
    """All attention by native kernels."""
    ready = prepared(program)
    sites = [each for each in kernels.sites_of(ready, "cpu") if each.family == "attention"]
    assert sites
    return kernels.apply_kernels(
        ready, {each.key: kernels.kernel_named(f"attention.native{storage}") for each in sites}
    )


def narrow(given: Arrays, kind: str) -> tuple[Arrays, Arrays]:
    """The same with keys and values in fewer bits, and what they mean; what is no number stays none."""
    kept, means = dict(given), dict(given)
    for name in ("key", "value"):
        if kind == "bf16":
            kept[name] = given[name].astype(ml_dtypes.bfloat16)
            means[name] = kept[name].astype(np.float32)
        elif kind == "int8":
            rows = np.nan_to_num(given[name], nan=0, posinf=0).reshape(-1, given[name].shape[-1])
            values, scales = FORMATS["int8"].written_by_numpy(rows)
            scales[~np.isfinite(given[name]).all(-1).reshape(-1)] = np.nan
            kept[name], kept[f"{name}_scales"] = (
                values.reshape(given[name].shape),
                scales.reshape(given[name].shape[:-1]),
            )
            means[name] = (values * scales[:, None]).reshape(given[name].shape)
    return kept, means


@pytest.mark.parametrize(("storage", "kind"), [("", ""), (":bf16", ""), ("", "int8"), ("", "bf16")])
def test_it_is_attention_over_gathered_pages_without_a_gather(storage: str, kind: str) -> None:
    rng = np.random.default_rng()
    problems = [*PROBLEMS, MANY]
    given, means = zip(*(narrow(each.arrays(rng), kind) for each in problems), strict=True)
    program = pcp.trace(
        lambda given: [each.attended(arrays) for each, arrays in zip(problems, given, strict=True)], given
    )
    native = by(program, storage)
    text = native.text
    assert text.count("page = array<i64: ") == len(PROBLEMS)
    # Those of the chunk that has more queries than read pages.
    assert text.count('"stablehlo.gather"') == (4 if kind == "int8" else 2)
    found = pcp.plan(native, cache=False).run(given)
    for problem, arrays, mine in zip(problems, means, found, strict=True):
        true, there = problem.exactly(arrays), arrays["count"] > 0
        limit = 2e-2 if storage and problem is MANY else 1e-5
        np.testing.assert_allclose(np.asarray(mine)[there], true[there], rtol=limit, atol=limit)


def test_where_all_keys_are_hidden_alike_values_count_as_they_are_held() -> None:
    rng = np.random.default_rng()
    query = rng.normal(size=(2, 1, 3, 8)).astype(np.float32)
    stored = rng.normal(size=(2, 9, 4, 3, 8)).astype(np.float32)
    table = np.array([[7, 2, 12], [4, 8, 1]], np.int32)  # 12: the last there is
    held, seen = rng.random((2, 12)) < 0.6, rng.random((2, 12)) < 0.5
    seen[0] = False

    def attention(query: Any, stored: Any, table: Any, held: Any, seen: Any) -> Any:
        k, v = (pcp.reshape(pcp.take(stored[i], table, 0), (2, 12, 3, 8)) for i in range(2))
        v = pcp.where(held[:, :, None, None], v, 0.0)
        scores = pcp.where(seen[:, None, None, :], pcp.einsum("bqhd,bkhd->bhqk", query, k), -1e9)
        return pcp.einsum("bhqk,bkhd->bqhd", pcp.softmax(scores), v)

    arrays = query, stored, table, held, seen
    program = pcp.trace(attention, *arrays)
    native = by(program)
    assert "page = array<i64: " in native.text
    np.testing.assert_allclose(
        np.asarray(pcp.plan(native, cache=False).run(*arrays)),
        np.asarray(pcp.plan(program, cache=False).run(*arrays)),
        rtol=1e-5,
        atol=1e-5,
    )


PAGED = {"key": [0, 4], "value": [0, 6], "table": [3, 0], "page": [2, 8, 12]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "there are 0 masks; expected 1"),
        ({"page": [2, 8]}, "the page has no three sizes"),
        ({"page": [2, 7, 12]}, "key has 40 elements; expected pages of 7"),
        ({"page": [3, 8, 12]}, "key has 5 elements; its strides reach element 8"),
        ({"starts": [0, 0, 8]}, "value has 60 elements; expected pages of 12"),
        ({"table": [3]}, "the table is not of 32-bit integers"),
    ],
)
def test_a_handler_refuses_pages_that_are_not_there(changes: dict[str, Any], words: str) -> None:
    takes, makes = FORWARD
    further = [(2, 3)] if changes else []
    refused("attention_f32", [*takes, *further], makes, words, **(ATTRIBUTES | PAGED | changes))
