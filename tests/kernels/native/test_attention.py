"""Native attention and its gradient: any lengths, widths, groups and masks, as exact as they say, on processors with less, too."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import pcp
from pcp import Program, kernels
from pcp.autodiff.gradient import value_and_vjp
from pcp.backends import CompilationFailed, ExecutionFailed
from pcp.kernels.features import masked
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.kernels.native.programs import calling

Arrays = list[np.ndarray[Any, Any]]


class Problem(NamedTuple):
    """Attention of `sharing` heads to each of `groups` sets of keys."""

    queries: int
    keys: int
    groups: int = 1
    sharing: int = 1
    width: int = 8
    depth: int = 8
    offset: int | None = None
    window: int | None = None
    masks: bool = False
    biases: bool = False
    fill: float = -np.inf

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of query, key, value."""
        kept = (2, self.keys, self.groups)
        return [
            (2, self.queries, self.groups, self.sharing, self.width),
            (*kept, self.width),
            (*kept, self.depth),
        ]

    def arrays(self, rng: np.random.Generator) -> Arrays:
        """Query, key, value, masks, and the cotangent of the result."""
        made = [rng.normal(size=shape).astype(np.float32) for shape in self.shapes]
        if self.masks:
            mask = rng.random((2, 1, 1, self.queries, self.keys)) < 0.6
            mask[..., 0] = True
            made.append(mask)
        if self.biases:
            made.append(rng.normal(size=(self.groups, self.sharing, 1, self.keys)).astype(np.float32))
        return [*made, rng.normal(size=(*self.shapes[0][:-1], self.depth)).astype(np.float32)]

    def program(self) -> Program:
        """The result and its cotangents, raised."""

        def attention(q: Any, k: Any, v: Any, *more: Any) -> Any:
            scores = pcp.einsum("bqgrd,bkgd->bgrqk", q, k) * 0.3
            seen = self._seen(pcp.iota, pcp.greater_equal)
            if self.masks:
                seen = more[0] if seen is None else seen & more[0]
            if seen is not None:
                scores = pcp.where(seen, scores, self.fill)
            if self.biases:
                scores = scores + more[-1]
            return pcp.einsum("bgrqk,bkgd->bqgrd", pcp.softmax(scores, -1), v)

        given = self.arrays(np.random.default_rng())[:-1]
        specs = [pcp.spec(x.shape, "bool" if x.dtype == bool else "f32") for x in given]
        return prepared(value_and_vjp(raised(pcp.trace(attention, *specs)), (0, 1, 2)))

    def _seen(self, iota: Any, greater_equal: Any) -> Any:
        """A query sees the keys up to `offset` after its own number, and from `window` before it, or after it where that is negative."""
        if self.offset is None:
            return None
        shape = (self.queries, self.keys)
        found = greater_equal(iota(shape, 0) + self.offset, iota(shape, 1))
        if self.window is not None:
            found = found & greater_equal(iota(shape, 1) + self.window, iota(shape, 0))
        return found

    def exactly(self, q: Any, k: Any, v: Any, *more: Any) -> Arrays:
        """The result and its cotangents in float64, by their formulas."""
        q, k, v, cotangent = (np.asarray(x, np.float64) for x in (q, k, v, more[-1]))
        scores = np.einsum("bqgrd,bkgd->bgrqk", q, k) * 0.3
        seen = self._seen(lambda shape, axis: np.indices(shape)[axis], np.greater_equal)
        seen = np.True_ if seen is None else seen
        seen = seen & more[0] if self.masks else seen
        scores = np.where(seen, scores, self.fill) + (more[-2] if self.biases else 0.0)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        change = np.einsum("bqgrd,bkgd->bgrqk", cotangent, v)
        change = np.where(seen, weights * (change - (weights * change).sum(-1, keepdims=True)) * 0.3, 0.0)
        return [
            np.einsum("bgrqk,bkgd->bqgrd", weights, v),
            np.einsum("bgrqk,bkgd->bqgrd", change, k),
            np.einsum("bgrqk,bqgrd->bkgd", change, q),
            np.einsum("bgrqk,bqgrd->bkgd", weights, cotangent),
        ]


PROBLEMS = [
    Problem(1, 300, groups=2, width=8),
    Problem(33, 127, groups=3, width=40, depth=17, offset=94),
    Problem(260, 260, width=64, depth=64, offset=0),
    Problem(70, 70, groups=2, sharing=3, width=16, depth=16, offset=0),
    Problem(140, 140, width=8, offset=0, window=20),
    Problem(301, 301, groups=2, sharing=2, width=24, depth=9, offset=0, window=4),
    Problem(170, 170, offset=0, window=0),
    Problem(75, 75, offset=0, window=1000),
    Problem(60, 333, groups=2, offset=273, window=-174),
    Problem(150, 150, groups=2, offset=0, window=130, masks=True, biases=True),
    Problem(1, 150, groups=2, sharing=4, width=16, depth=5, offset=149, window=-75),
    Problem(45, 150, sharing=2, width=128, depth=100, masks=True),
    Problem(45, 150, groups=2, biases=True),
    Problem(64, 64, offset=0, masks=True, biases=True, fill=-1e9),
    Problem(31, 31, offset=2, fill=-1e5, masks=True),
    Problem(1, 150, groups=3, width=100, depth=80, masks=True),
    Problem(1, 150, groups=2, sharing=4, width=16, depth=5, offset=97, masks=True, biases=True),
    Problem(8, 200, groups=2, width=24, depth=40, offset=30, biases=True),
]


def by(program: Program, kind: str) -> Program:
    """Both sites by native kernels."""
    sites = [each for each in kernels.sites_of(program, "cpu") if each.family.startswith("attention")]
    assert [each.family for each in sites] == ["attention", "attention_gradient"]
    return kernels.apply_kernels(
        program, {each.key: kernels.kernel_named(f"{each.family}.{kind}") for each in sites}
    )


def run(program: Program, arrays: Arrays) -> Arrays:
    value, cotangents = pcp.plan(program, cache=False).run(*arrays)
    return [np.asarray(each) for each in (value, *cotangents)]


@pytest.mark.parametrize(
    "hides",
    [
        "",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("avx512_bf16", "avx512f,avx512_bf16", "avx512f,avx512_bf16,avx2")
        ),
    ],
)
def test_it_is_attention_of_any_lengths_widths_groups_and_masks(hides: str) -> None:
    rng = np.random.default_rng()
    with masked(*filter(None, hides.split(","))):
        for problem in PROBLEMS[1:4] if hides else PROBLEMS:
            program, arrays = problem.program(), problem.arrays(rng)
            exact = problem.exactly(*arrays)
            for kind, limit, of_gradients in (("native", 2e-6, 8e-6), ("native:bf16", 1.2e-2, 1.2e-2)):
                if "bf16" in kind and problem not in PROBLEMS[1:4]:
                    continue
                found = run(by(program, kind), arrays)
                for place, (mine, true) in enumerate(zip(found, exact, strict=True)):
                    assert mine.shape == true.shape
                    # Gradients take exponentials of scores less a normaliser, whose last bit is 2e-6 where it is 30.
                    most = (of_gradients if place else limit) * max(np.linalg.norm(true), 1.0)
                    assert np.linalg.norm(mine - true) <= most, (problem, kind, place)


def test_keys_that_are_not_seen_count_where_those_that_are_seen_are_as_small() -> None:
    problem = Problem(1, 40, masks=True, fill=-1e5)
    arrays = problem.arrays(np.random.default_rng())
    arrays[0][:] = 1
    arrays[1] = arrays[1] - np.float32(1e5 / (0.3 * 8))
    exact = problem.exactly(*arrays)[0]
    blind = problem.exactly(*arrays[:3], np.ones_like(arrays[3]), *arrays[4:])[0]
    found = run(by(problem.program(), "native"), arrays)[0]
    assert np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact) < np.linalg.norm(blind - exact)


def test_one_head_may_be_computed_in_another_way_than_its_neighbours() -> None:
    """As above, in one head of several that are computed together: the others, and theirs, stay right."""
    problem = Problem(2, 40, groups=3, masks=True, fill=-1e5)
    arrays = problem.arrays(np.random.default_rng())
    arrays[0][0, :, 1] = 1
    arrays[1][0, :, 1] -= np.float32(1e5 / (0.3 * 8))
    exact = problem.exactly(*arrays)[0]
    found = run(by(problem.program(), "native"), arrays)[0]
    away = np.sqrt(((found - exact) ** 2).sum((1, 3, 4)) / (exact**2).sum((1, 3, 4)))
    assert away[0, 1] < 0.03  # its scores have 0.008 for their last bit
    away[0, 1] = 0
    assert away.max() < 2e-6


def test_parts_of_the_keys_that_one_query_sees_count_as_they_are() -> None:
    """Single queries meet 32 keys at a time: none of some is seen, or all scores of some are NaN."""
    problem = Problem(1, 130, groups=2, masks=True)
    arrays = problem.arrays(np.random.default_rng())
    arrays[3][..., :40] = arrays[3][..., 64:97] = False
    arrays[3][..., 97:] = True
    arrays[1][1, 97:128, 1] = np.nan
    with np.errstate(invalid="ignore"):
        exact = problem.exactly(*arrays)[0]
    found = run(by(problem.program(), "native"), arrays)[0]
    assert np.isnan(found[1, :, 1]).all()
    np.testing.assert_allclose(found, exact, atol=2e-6)  # NaN where there should be NaN, and nowhere else


def test_operands_are_read_where_one_product_wrote_them() -> None:
    """No slice, no transposition: query, key and value are parts of one array, as a product of all three writes it."""
    problem = Problem(50, 50, groups=3, width=8, depth=8, offset=0)

    def attention(qkv: Any) -> Any:
        parts = [part.reshape((2, 50, 3, 8)) for part in pcp.split(qkv * 1.0, 3, axis=2)]
        q, k, v = (pcp.transpose(part, (0, 2, 1, 3)) for part in parts)
        seen = pcp.greater_equal(pcp.iota((50, 50), 0), pcp.iota((50, 50), 1))
        scores = pcp.where(seen, pcp.einsum("bgqd,bgkd->bgqk", q, k) * 0.3, -np.inf)
        return pcp.einsum("bgqk,bgkd->bqgd", pcp.softmax(scores, -1), v)

    program = prepared(value_and_vjp(raised(pcp.trace(attention, pcp.spec((2, 50, 72), "f32"))), 0))
    changed = by(program, "native")
    calls = [line for line in changed.text.splitlines() if "custom_call" in line]
    assert ["tensor<2x50x72xf32>, tensor<2x50x72xf32>, tensor<2x50x72xf32>" in line for line in calls] == [
        True
    ] * 2
    assert "stablehlo.slice" not in changed.text
    rng = np.random.default_rng()
    qkv = rng.normal(size=(2, 50, 72)).astype(np.float32)
    cotangent = rng.normal(size=(2, 50, 3, 8)).astype(np.float32)
    q, k, v = (part.reshape(2, 50, 3, 8) for part in np.split(qkv, 3, axis=2))
    exact = problem.exactly(q[:, :, :, None], k, v, cotangent[:, :, :, None])
    value, found = pcp.plan(changed, cache=False).run(qkv, cotangent)
    np.testing.assert_allclose(np.asarray(value), exact[0].reshape(2, 50, 3, 8), rtol=1e-4, atol=1e-5)
    true = np.concatenate([each.reshape(2, 50, 24) for each in exact[1:]], axis=2)
    np.testing.assert_allclose(np.asarray(found), true, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("queries", [200, 3])
def test_keys_before_a_window_are_not_looked_at(queries: int) -> None:
    """No mask is in memory, and NaN of keys that no query sees reaches nothing, for no product meets it."""
    problem = Problem(queries, 700, groups=2, sharing=2, offset=700 - queries, window=queries - 680)
    program, arrays = problem.program(), problem.arrays(np.random.default_rng())
    changed = by(program, "native")
    calls = [line for line in changed.text.splitlines() if "custom_call" in line]
    assert ["xi1>" in line for line in calls] == [False] * 2
    exact = problem.exactly(*arrays)
    # Single queries begin at the first key that they see, others and gradients at a block of keys.
    unseen, count = (680 - queries, 1) if queries < 8 else (300, 4)
    arrays[1][:, :unseen] = arrays[2][:, :unseen] = np.nan
    for mine, true in list(zip(run(changed, arrays), exact, strict=True))[:count]:
        assert np.linalg.norm(mine - true) < 1e-5 * np.linalg.norm(true)


def test_where_a_query_sees_no_key_of_its_window_masks_say_so() -> None:
    """Of more queries than keys the last see none; of a finite fill they see all alike, so no key may be skipped."""
    problem = Problem(90, 40, groups=2, offset=0, window=5, fill=-1e30)
    program, arrays = problem.program(), problem.arrays(np.random.default_rng())
    for mine, true in zip(run(by(program, "native"), arrays), problem.exactly(*arrays), strict=True):
        assert np.linalg.norm(mine - true) < 1e-5 * np.linalg.norm(true)


@pytest.mark.parametrize("fill", [-1e9, -1e30, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("queries", [3, 40])
def test_a_query_of_which_every_key_is_hidden_sees_all_alike(queries: int, fill: float) -> None:
    """As of padding in a batch: the logarithm of the number of keys must not be lost beside such a score."""
    problem = Problem(queries, 150, groups=2, sharing=2, masks=True, fill=fill)
    program, arrays = problem.program(), problem.arrays(np.random.default_rng())
    arrays[3][:, :, :, 1] = False
    for kind, limit in (("native", 1e-5), ("native:bf16", 1.2e-2)):
        for mine, true in zip(run(by(program, kind), arrays), problem.exactly(*arrays), strict=True):
            assert np.linalg.norm(mine - true) < limit * np.linalg.norm(true)


ALIKE = [
    Problem(150, 197, groups=2, width=16, depth=24),
    Problem(130, 130, groups=2, sharing=3, width=16, depth=16, offset=0),
    Problem(5, 150, sharing=2, width=16, depth=8),
    Problem(60, 150, width=16, depth=8, masks=True, fill=-1e9),
    Problem(60, 150, groups=2, width=16, depth=8, offset=90, masks=True, biases=True, fill=float(np.finfo(np.float32).min)),
    Problem(150, 150, width=16, offset=0, window=40),
    Problem(60, 150, width=16, masks=True, fill=-1e5),
]  # fmt: skip


def test_keys_and_values_that_are_nearly_alike_keep_how_they_differ_in_bfloat16() -> None:
    """Rounding would lose it: the cotangent of queries was wrong by hundreds of times its size."""
    rng = np.random.default_rng(7)
    for problem in ALIKE:
        changed = by(problem.program(), "native:bf16")
        for apart in (1.0, 0.1, 0.01):
            arrays = problem.arrays(rng)
            for place in (1, 2):
                common = rng.normal(size=(2, 1, *arrays[place].shape[2:])).astype(np.float32)
                arrays[place] = common + np.float32(apart) * arrays[place]
            counts = problem.fill == -1e5
            if counts:  # so do keys that are not seen, and 0.008 is the last bit of scores
                arrays[0][:] = 1
                arrays[1] -= np.float32(1e5 / (0.3 * 16))
            found = run(changed, arrays)
            for place, (mine, true) in enumerate(zip(found, problem.exactly(*arrays), strict=True)):
                away = np.linalg.norm(mine - true) / np.linalg.norm(true)
                assert away < (0.2 if counts else 1.2e-2), (problem, apart, place)


def attended(queries: int = 40, keys: int = 40) -> Program:
    return Problem(queries, keys, offset=0).program()


def test_infinities_and_nan_stay_where_they_belong() -> None:
    """NaN of a query or key reaches the queries that see it, and what no query sees reaches none."""
    program, arrays = attended(), Problem(40, 40, offset=0).arrays(np.random.default_rng())
    q, k, v, _ = arrays
    q[0, 3], k[1, 20, 0, 2], v[1, 39, 0, 5] = np.nan, np.inf, np.inf
    with np.errstate(invalid="ignore"):
        exact = Problem(40, 40, offset=0).exactly(*arrays)[0]
    for kind in ("native", "native:bf16"):
        found = run(by(program, kind), arrays)[0]
        looked_at = np.ones(exact.shape, bool)
        looked_at[1, :, :, :, 5] = False  # 0 times an infinity that is not seen
        np.testing.assert_array_equal(np.isnan(found[looked_at]), np.isnan(exact[looked_at]))
        assert np.isnan(found[0, 3]).all()
        assert np.isnan(found).sum() < exact.size / 2


def test_a_query_that_sees_no_key_has_no_result() -> None:
    problem = Problem(9, 5, offset=-3)
    program, arrays = problem.program(), problem.arrays(np.random.default_rng())
    plain, found = (run(each, arrays)[0] for each in (program, by(program, "native")))
    assert np.isnan(found[:, :3]).all()
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "limit"), [("native", 1e-5), ("native:bf16", 0.2)])
def test_scores_may_rise_from_block_to_block(kind: str, limit: float) -> None:
    """Weights are then taken beside a larger score, and bits of other queries stay: their scores fall, or come late."""
    problem = Problem(40, 400, groups=2, masks=True)
    program, arrays = by(problem.program(), kind), problem.arrays(np.random.default_rng())
    arrays[0][:, ::2] = np.abs(arrays[0][:, ::2])
    arrays[1] += 7 * (np.arange(400, dtype=np.float32)[:, None, None] // 128)
    arrays[3][..., 1::4, :256] = False
    found = run(program, arrays)
    for mine, true in zip(found, problem.exactly(*arrays), strict=True):
        assert np.linalg.norm(mine - true) < limit * np.linalg.norm(true)
    arrays[0][:, ::2] *= -1
    np.testing.assert_array_equal(run(program, arrays)[0][:, 1::2], found[0][:, 1::2])


@pytest.mark.parametrize("queries", [300, 1])
def test_the_bits_do_not_depend_on_the_moment(queries: int) -> None:
    problem = Problem(queries, 300, groups=3, width=20, depth=20, offset=300 - queries)
    program, arrays = problem.program(), problem.arrays(np.random.default_rng())
    for kind in ("native", "native:bf16"):
        changed = by(program, kind)
        first = run(changed, arrays)
        for _ in range(3):
            for mine, before in zip(run(changed, arrays), first, strict=True):
                np.testing.assert_array_equal(mine, before)


ATTRIBUTES = {
    "batch": [2], "sizes": [1, 3, 5, 4, 6], "starts": [0, 0, 0], "query": [12, 0, 4], "key": [20, 4], "value": [30, 6],
    "result": [18, 0, 6], "for_query": [12, 0, 4], "for_key": [20, 4], "for_value": [30, 6],
    "mask": [], "bias": [], "table": [], "page": [], "held": [],
    "scale": 1.0, "fill": 0.0, "causal": 1, "skips": 1, "offset": 2, "window": 4,
}  # fmt: skip
FORWARD = [(2, 3, 4), (2, 5, 4), (2, 5, 6)], [(2, 3, 6), (12,)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sizes": [1, 3, 5, 4]}, "there are 4 sizes; expected five"),
        ({"sizes": [1, 0, 5, 4, 6]}, "a size is 0; expected 1 or more"),
        ({"batch": [1 << 62]}, "the sizes are too large"),
        ({"batch": [3]}, "query has 24 elements; its sizes say 36 from element 0 on"),
        ({"starts": [0, 0]}, "there are 2 starts; expected three"),
        ({"starts": [0, -1, 0]}, "key has 40 elements; its sizes say 40 from element -1 on"),
        ({"starts": [0, 1, 0]}, "key has 36 elements; its strides reach element 36"),
        ({"starts": [0, 0, 1 << 62]}, "value has 60 elements; its sizes say 60 from element"),
        ({"query": [12, 4]}, "query has 2 strides; expected 3"),
        ({"query": [12, 0, 5]}, "query has 21 elements; its strides reach element 22"),
        ({"key": [20, -4]}, "a stride of key is negative or too large"),
        ({"value": [31, 6]}, "value has 55 elements; its strides reach element 55"),
        ({"result": [18, 0, 7]}, "the result has 31 elements; its strides reach element 32"),
        ({"causal": 2}, "causal or skips is 2; expected 0 or 1"),
        ({"offset": -1}, "keys are skipped that are seen, or by queries that see none"),
        ({"offset": 1 << 62}, "the offset is too large"),
        ({"window": -1}, "the window is -1; expected 0, or some keys where causal is 1"),
        ({"window": 1 << 62}, "the window is 4611686018427387904; expected 0, or some keys"),
        ({"causal": 0, "skips": 0}, "the window is 4; expected 0, or some keys where causal is 1"),
        ({"sizes": [1, 40, 5, 4, 6]}, "keys are skipped that are seen, or by queries that see none"),
        ({"mask": [0, 0, 5, 1]}, "there are 0 masks; expected 1"),
    ],
)
def test_a_handler_refuses_what_it_is_not_for(changes: dict[str, Any], words: str) -> None:
    refused("attention_f32", *FORWARD, words, **(ATTRIBUTES | changes))


@pytest.mark.parametrize(
    ("takes", "makes", "more", "words"),
    [
        (FORWARD[0], [(2, 3, 6), (5,)], {}, "there are 5 normalisers; expected two of each query"),
        (FORWARD[0], [(2, 3, 5), (6,)], {}, "the result has 30 elements; its sizes say 36"),
        ([*FORWARD[0], (3, 5)], FORWARD[1], {"mask": [0, 0, 5, 1]}, "Wrong buffer dtype"),
        ([*FORWARD[0], (3, 5)], FORWARD[1], {"bias": [1, 0, 5, 1]}, "what is added to scores has 15 elements; its strides reach"),
    ],
)  # fmt: skip
def test_a_handler_refuses_arrays_of_other_sizes(takes: Any, makes: Any, more: Any, words: str) -> None:
    refused("attention_f32", takes, makes, words, **(ATTRIBUTES | more))


@pytest.mark.parametrize(
    ("takes", "makes", "words"),
    [
        ([(2, 3, 5), (2, 3, 6), (12,)], FORWARD[0], "the cotangent has 30 elements; its sizes say 36"),
        ([(2, 3, 6), (2, 3, 6), (1,)], FORWARD[0], "there are 1 normalisers; expected two of each query"),
        ([(2, 3, 6), (2, 3, 6), (12,)], [(2, 3, 4), (2, 5, 4), (2, 5, 5)], "the value's has 50 elements; its sizes say 60"),
    ],
)  # fmt: skip
def test_a_handler_refuses_cotangents_of_other_sizes(takes: Any, makes: Any, words: str) -> None:
    refused("attention_gradient_bf16", [*FORWARD[0], *takes], makes, words, **ATTRIBUTES)


def refused(handler: str, takes: Any, makes: Any, words: str, **attributes: Any) -> None:
    program = calling(handler, takes, makes, **attributes)
    with pytest.raises((ExecutionFailed, CompilationFailed)) as raised_error:
        pcp.plan(program).run(*(np.ones(shape, np.float32) for shape in takes))
    assert words in str(raised_error.value)
