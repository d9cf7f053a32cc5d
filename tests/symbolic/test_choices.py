"""Choices by size: nothing is silently wrong, next to no size of a program that is the same for all sizes is refused."""

import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.symbolic import BuiltDifferently, SizesRefused, SymbolicProgram, checking
from pcp.symbolic.agreement import agree
from pcp.symbolic.checking import Source, compared_at_many
from pcp.symbolic.constraints import Space
from pcp.symbolic.watched import SizeHasNoNumber
from pcp.tensor import ShapeMismatch
from tests.symbolic.choices import CASES, CHOICES, EVERYWHERE, FLOATS, LOOPS, Case, chunked

EDGES = (1, 2, 3, 10, 93, 200, 1099, 2048, 2501, 3000, 3001, 4001, 5000, 5500, 40001, 500000)
LARGEST = 900_000


def wrong_at(case: Case, sizes: tuple[int, ...] = EDGES, files: bool = True) -> tuple[list[int], list[int]]:
    """Sizes at which the program, or that in a file, is silently another than the static trace; and those that are refused.

    Arguments:
        files: whether what a file refuses counts.
    """
    function, shape, constraints = case
    try:
        program: Any = pcp.trace(function, pcp.spec(shape, "f32"), constraints=constraints)
    except pcp.PCPError:
        return [], list(sizes)
    wrong, refused = [], []
    for n in sizes:
        given = {name: n + n % 2 if "n % 2 == 0" in constraints else n for name in program.symbols[:1]}
        given |= dict.fromkeys(program.symbols[1:], 50)
        numbers = tuple(s if isinstance(s, int) else eval(s, {}, given) for s in shape)
        try:
            expected = pcp.trace(function, pcp.spec(numbers, "f32"))
        except (pcp.PCPError, IndexError, ZeroDivisionError):
            expected = None
        for each in (program, SymbolicProgram.from_artifact(program.artifact())):
            try:
                made = each.at(**given)
            except SizesRefused:
                if expected is not None and (files or each is program):
                    refused.append(n)
                continue
            if expected is None or not agree(made, expected):
                wrong.append(n)
    return wrong, refused


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "name", [*CHOICES, *LOOPS, "x[:4000]", "np.minimum", "ceil", "max", "pad to", "roll 5000"]
)
def test_a_choice_is_never_silently_wrong(name: str) -> None:
    assert wrong_at(CASES[name], (2, 3000, 3001, 4001, 5000, 5500, 40001))[0] == []


@pytest.mark.share(4)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_program_that_is_the_same_for_all_sizes_is_refused_at_none(name: str) -> None:
    assert wrong_at(CASES[name], (2, 4096, 70001), name not in FLOATS) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_no_case_is_silently_wrong_at_any_edge(name: str) -> None:
    wrong, refused = wrong_at(CASES[name], files=name not in FLOATS)
    assert wrong == []
    assert not (name in EVERYWHERE and set(refused) - {1}), refused


def test_a_clipped_slice_is_a_constraint_of_it_and_of_its_gradient() -> None:
    program: Any = pcp.trace(lambda x: x[:4000].sum(), pcp.spec(("n",), "f32"))
    assert program.constraints == ("n <= 4000",)
    for each in (program, pcp.grad(program), pcp.value_and_grad(program)):
        with pytest.raises(
            SizesRefused, match=r"expected n <= 4000, and 5000 <= 4000 does not.*test_choices"
        ):
            each.at(n=5000)
    x = np.ones(4000, np.float32)
    assert float(pcp.plan(program.at(n=4000), "arena:cpu").run(x)) == 4000


@pytest.mark.parametrize(
    ("function", "constraint"),
    [
        (lambda x: x.sum() * -(-x.shape[0] // 1100), "-((-n) // 1100) == 1"),
        (lambda x: x.sum() * (2.0 if x.shape[0] // 2000 else 1.0), "n // 2000 == 0"),
        (lambda x: x[: np.minimum(x.shape[0], 4000)], "n <= 4000"),
        (lambda x: x * 2 if x[::2].shape[0] > 3000 else x, "(n + 1) // 2 <= 3000"),
        (lambda x: x * 2 if x.shape[0] / 3 > 1000 else x, "n <= 3000"),
        (lambda x: pcp.top_k(x, 20)[0], "n >= 20"),
        (lambda x: x[:10], "n >= 10"),
    ],
)
def test_a_choice_is_a_constraint(function: Callable[[Any], Any], constraint: str) -> None:
    program: Any = pcp.trace(function, pcp.spec(("n",), "f32"))
    assert program.constraints == (constraint,)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (chunked, r"(?s)used as an integer of Python.*loop by pcp.scan.*choices.py"),
        (lambda x: x / len(x), r"the size n is symbolic and was used as an integer"),
        (
            lambda x: x * {1: 2}.get(x.shape[0], 3),
            r"used as a key of a dictionary or set; .*compare it with ==",
        ),
        (lambda x: x * {1: 2}[x.shape[0]], r"used as a key of a dictionary or set; .*compare it with =="),
        (lambda x: x * [1.0, 2.0][x.shape[0]], r"used as an integer of Python"),
        (
            lambda x: x * int(x.shape[0] / 2),
            r"the size n / 2 is symbolic and was made an integer; .*divide by //",
        ),
        (lambda x: x * round(x.shape[0] / 2), "the size n / 2 is symbolic and was rounded; expected"),
        (lambda x: x * x.shape[0].bit_length(), "was asked for its bit_length; expected"),
        (lambda x: x * (x.shape[0] ^ 3), "used as a row of bits, or as an exponent; expected"),
        (lambda x: x + np.zeros(x.shape, np.float32), r"make arrays by pcp.iota, .*\n  at .*test_choices.py"),
    ],
)
def test_what_needs_a_number_is_refused_with_the_line(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(SizeHasNoNumber, match=message):
        pcp.trace(function, pcp.spec(("n",), "f32"))


@pytest.mark.parametrize(
    ("function", "shape", "named"),
    [
        (lambda x: x * 2 if x.shape[0] % 3 == 0 else x, ("n",), {"n % 3 == 0", "n % 3 != 0"}),
        (lambda x: pcp.diagonal(x), ("n", "m"), {"n >= m", "n < m"}),
        (lambda x: x.sum() * min(x.shape), ("n", "m"), {"m < n", "m >= n"}),
    ],
)
def test_a_comparison_that_splits_the_sizes_is_named(
    function: Callable[[Any], Any], shape: tuple[str, ...], named: set[str]
) -> None:
    with pytest.raises(
        BuiltDifferently,
        match=r"holds for some sizes and not for others, at .*choices.py:\d+: trace twice, with",
    ) as found:
        pcp.trace(function, pcp.spec(shape, "f32"))
    assert set(re.findall(r"with constraints=\['([^']*)'\]", str(found.value))) == named
    for constraint in named:
        assert pcp.trace(function, pcp.spec(shape, "f32"), constraints=[constraint])


def test_a_roll_by_more_than_a_symbolic_size_says_what_to_write() -> None:
    with pytest.raises(
        ShapeMismatch, match=r"roll: 5000 places .* size is a symbol that may be \d+; expected as"
    ) as found:
        pcp.trace(lambda x: pcp.roll(x, 5000, 0), pcp.spec(("n",), "f32"))
    assert "pcp.take(x, (pcp.arange(size) - distance) % size, axis)" in str(found.value)

    def written(x: pcp.Tensor) -> pcp.Tensor:
        return pcp.take(x, (pcp.arange(x.shape[0]) - 5000) % x.shape[0], 0)

    x = np.arange(37, dtype=np.float32)
    got = pcp.plan(pcp.trace(written, pcp.spec(("n",), "f32")), "arena:cpu").run(x)
    np.testing.assert_array_equal(np.asarray(got), np.roll(x, 5000))


def test_a_quantile_along_a_symbolic_axis_takes_a_quotient() -> None:
    with pytest.raises(
        ShapeMismatch,
        match=r"quantile: q = 0.1234567 was given along .*expected a quotient",
    ):
        pcp.trace(lambda x: pcp.quantile(x, 0.1234567), pcp.spec(("n",), "f32"))


def test_a_quantile_below_an_infinity_is_the_element_that_it_meets() -> None:
    x = np.array([1, np.inf, 2], np.float32)
    program = pcp.trace(lambda x: pcp.quantile(x, 0.5), pcp.spec(("n",), "f32"))
    assert (
        float(pcp.plan(program, "arena:cpu").run(x))
        == float(pcp.plan(program.at(n=3), "cpu:0", cache=False).run(x))
        == 2
    )


RIGHT: dict[str, Callable[[Any, Any], Any]] = {
    "%": lambda x, _: x * (x.shape[0] % 7),
    "% as an extent": lambda x, xp: xp.pad(x, [(0, x.shape[0] % 7)]),
    "% and //": lambda x, _: x * (x.shape[0] % 7 + x.shape[0] // 30),
    "// 20": lambda x, _: x[: x.shape[0] // 20 + 1],
    "padded to blocks": lambda x, xp: xp.pad(x, [(0, -x.shape[0] % 48)]),
    "n / 4000": lambda x, _: x * (x.shape[0] / 4000),
    "n * 0.1": lambda x, _: x * (x.shape[0] * 0.1),
    "n - 0.5": lambda x, _: x * (x.shape[0] - 0.5),
    "quantile": lambda x, xp: xp.quantile(x, 0.25),
    "median": lambda x, xp: x * xp.quantile(x, 0.5),
    "decile": lambda x, xp: xp.quantile(x, 0.9, axis=0),
}


@pytest.mark.parametrize("name", RIGHT)
def test_quotients_and_remainders_are_right_at_all_sizes(name: str) -> None:
    program: Any = pcp.trace(lambda x: RIGHT[name](x, pcp), pcp.spec(("n",), "f32"))
    seen = [
        each
        for each in (program, SymbolicProgram.from_artifact(program.artifact()))
        if not each.evidence.unseen
    ]
    for n in (1, 6, 7, 48, 49, 4001, 50000):
        x = np.random.default_rng(n).normal(size=n).astype(np.float32)
        for each in seen or [program]:
            got = pcp.plan(each.at(n=n), "arena:cpu").run(x)
            np.testing.assert_allclose(np.asarray(got), RIGHT[name](x, np), rtol=1e-4, atol=1e-4)


def test_a_gradient_and_a_part_know_the_quotients_of_their_program() -> None:
    program: Any = pcp.trace(
        lambda x: (x[: x.shape[0] // 20 + 1] ** 2).sum() * x.shape[1], pcp.spec(("n", "m"), "f32")
    )
    for each in (
        pcp.grad(program),
        SymbolicProgram.from_artifact(pcp.grad(program).artifact()),
        pcp.grad(program.at(m=3)),
    ):
        sizes = {"n": 4001} | ({"m": 3} if len(each.symbols) > 1 else {})
        x = np.ones((4001, 3), np.float32)
        got = np.asarray(pcp.plan(each.at(**sizes), "arena:cpu").run(x))
        assert got.sum() == 201 * 3 * 6


def test_a_loss_whose_slice_clips_is_not_planned_beyond_it() -> None:
    def loss(w: pcp.Tensor, x: pcp.Tensor) -> pcp.Tensor:
        return ((x[:2048] * w) ** 2).mean()

    program = pcp.trace(loss, pcp.spec((), "f32", "weight"), pcp.spec(("n",), "f32"))
    plan: Any = pcp.plan(pcp.training_step(program, pcp.optimizers.sgd(0.1)), "arena:cpu")
    state = plan.program.at(n=8).initial_state(np.float32(1))
    plan.run(state, (np.ones(8, np.float32),))
    with pytest.raises(SizesRefused, match="expected n <= 2048"):
        plan.run(state, (np.ones(4096, np.float32),))


def test_a_file_says_up_to_where_it_was_compared() -> None:
    program: Any = pcp.trace(lambda x: x * 2 + 1, pcp.spec(("n",), "f32"))
    read: Any = SymbolicProgram.from_artifact(program.artifact())
    assert read.at(n=LARGEST).digest == program.at(n=LARGEST).digest
    assert program.at(n=5_000_000).results[0].spec.shape == (5_000_000,)
    with pytest.raises(SizesRefused, match=r"for n from 1 to 9\d{5} before it was written.*'n <= 5000000'"):
        read.at(n=5_000_000)
    further: Any = pcp.trace(lambda x: x * 2 + 1, pcp.spec(("n",), "f32"), constraints=["n <= 5000000"])
    assert SymbolicProgram.from_artifact(further.artifact()).at(n=5_000_000)


def test_what_lies_between_the_sizes_that_were_compared_is_found_where_it_is_used() -> None:
    hidden = [float(2 * n) for n in (2600, 2700)]  # 5200 to 5400: no number of the function
    program: Any = pcp.trace(
        lambda x: x * 2 if hidden[0] < float(str(x.spec.shape[0])) < hidden[1] else x, pcp.spec(("n",), "f32")
    )
    assert program.at(n=5100)
    with pytest.raises(SizesRefused, match=r"\(n=5300\) were given, and the function makes another program"):
        program.at(n=5300)


JAX = {
    "head": lambda x: x[:4000].sum(),
    "chunks": lambda x: sum(x[i : i + 2048].max() for i in range(0, x.shape[0], 2048)),
    "minimum": lambda x: x[: np.minimum(x.shape[0], 4000)].sum(),
    "between": lambda x: x * 2 if 5000 < x.shape[0] < 6000 else x,
    "if": lambda x: x.sum() * (2.0 if x.shape[0] // 2000 else 1.0),
}


@pytest.mark.parametrize("name", JAX)
def test_a_function_of_jax_that_chooses_is_refused(name: str) -> None:
    with pytest.raises(BuiltDifferently, match=r"for the sizes \(n=\d+\) than what follows from smaller"):
        pcp.from_jax(JAX[name], pcp.spec(("n",), "f32"))
    bounded: Any = pcp.from_jax(JAX[name], pcp.spec(("n",), "f32"), constraints=["n <= 1999"])
    x = np.random.default_rng().normal(size=1500).astype(np.float32)
    got = pcp.plan(bounded.at(n=1500), "arena:cpu").run(x)
    np.testing.assert_allclose(np.asarray(got), JAX[name](x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("constraints", [(), ("n <= 5000000",), ("n <= 200", "n % 8 == 0")])
def test_a_large_program_is_compared_at_three_sizes_that_span_what_the_constraints_leave(
    constraints: tuple[str, ...],
) -> None:
    space = Space.of(("n",), constraints)
    tried: list[int] = []

    def same(sizes: dict[str, int]) -> bool:
        tried.append(sizes["n"])
        return True

    source = Source(lambda _: None, numbers=(50, 4000))  # type: ignore[arg-type,return-value]  # only `same` is asked
    spans = compared_at_many(space, {"n": 40}, source, (3000,), 100_000, same).spans
    assert len(tried) <= 3
    assert spans == ((8, 200) if "n <= 200" in constraints else (1, 5_000_000 if constraints else 997_556),)


def test_a_function_that_takes_long_is_compared_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for seconds in (1e9, -1.0):
        monkeypatch.setattr(checking, "_SECONDS", seconds)
        calls: list[int] = []
        pcp.trace(lambda x, calls=calls: (calls.append(1), x * 2 + 4000.0)[1], pcp.spec(("n",), "f32"))
        counts.append(len(calls))
    assert counts[1] < counts[0]


def rows_of(xp: Any, k: int) -> list[Callable[[Any], Any]]:
    """Functions of NumPy or PCP that clip, choose and scale by a size and a number."""
    return [
        lambda x: x[:k],
        lambda x: x[-k:],
        lambda x: x[k:],
        lambda x: x[::2],
        lambda x: x[: x.shape[0] // 2 + 1],
        lambda x: x * min(x.shape[0], k),
        lambda x: x * (x.shape[0] // k),
        lambda x: x * (x.shape[0] % k),
        lambda x: x * -(-x.shape[0] // k),
        lambda x: x / x.shape[0],
        lambda x: x * 2 if x.shape[0] > k else x,
        lambda x: x * (1 + (x.shape[0] / k > 2)),
        lambda x: xp.roll(x, 3, 0),
        lambda x: xp.pad(x, [(1, max(0, k - x.shape[0]))]),
        lambda x: xp.concatenate([x, x[:k]]),
        lambda x: x - x.mean(),
    ]


def check_random(seed: int) -> None:
    rng = random.Random(seed)
    number = rng.choice([rng.randrange(2, 30), rng.randrange(100, 900), rng.randrange(1000, 9000)])
    chosen = rng.sample(range(len(rows_of(np, number))), rng.randrange(1, 4))

    def function(x: Any, xp: Any) -> Any:
        for place in chosen:
            x = rows_of(xp, number)[place](x)
        return x

    try:
        program: Any = pcp.trace(lambda x: function(x, pcp), pcp.spec(("n",), "f32"))
    except pcp.PCPError:
        return
    read = SymbolicProgram.from_artifact(program.artifact())
    for n in {number - 1, number, number + 1, 2 * number, 2 * number + 1, rng.randrange(1, 20000)}:
        x = np.random.default_rng(seed).normal(size=n).astype(np.float32)
        for each in (program, read):
            try:
                made = each.at(n=n)
            except SizesRefused:
                continue
            got = np.asarray(pcp.plan(made, "arena:cpu").run(x))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
                expected = function(x, np)
            assert got.shape == expected.shape, (seed, n)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=f"{seed}, n={n}")


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_right_or_refused_on_both_sides_of_their_numbers(seed: int) -> None:
    check_random(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_programs(seed: int) -> None:
    check_random(seed)
