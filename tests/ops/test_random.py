"""Random numbers: bit for bit those of JAX, whose arithmetic is the same, and distributed as they should be."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run, run_in_jax

import pcp
from pcp.ir import DType
from pcp.ops.threefry import NoKey
from pcp.tensor import DTypeMismatch, ShapeMismatch

SEED = 12345678901234
FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def drawn(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a key, and of further arguments, makes of the key of `SEED`."""
    key = pcp.random.key(SEED)
    return run(pcp.trace(function, key, *arguments), key, *arguments)


@pytest.fixture
def theirs() -> Any:
    """JAX's key of the same seed."""
    with jax.enable_x64(True):
        yield jax.random.key(SEED)


def words(keys: Any) -> Any:
    """The words of JAX's keys."""
    return np.asarray(jax.random.key_data(keys))


def test_keys_are_those_of_jax() -> None:
    seeds = [0, 1, SEED, 2**32, -1, 2**63 - 1]
    program = pcp.trace(
        lambda seeds: [pcp.random.key(seed) for seed in seeds], [pcp.spec((), "i64")] * len(seeds)
    )
    found = run(program, [np.int64(seed) for seed in seeds])
    for seed, mine in zip(seeds, found, strict=True):
        with jax.enable_x64(True):
            expected = words(jax.random.key(seed))
        np.testing.assert_array_equal(pcp.random.key(seed), expected, err_msg=str(seed))
        np.testing.assert_array_equal(mine, expected, err_msg=str(seed))


def test_keys_split_and_fold_as_those_of_jax(theirs: Any) -> None:
    np.testing.assert_array_equal(drawn(lambda k: pcp.random.split(k, 5)), words(jax.random.split(theirs, 5)))
    for number in (0, 7, 2**32 - 1):
        expected = words(jax.random.fold_in(theirs, number))
        np.testing.assert_array_equal(drawn(lambda k, n=number: pcp.random.fold_in(k, n)), expected)
    np.testing.assert_array_equal(
        drawn(pcp.random.fold_in, np.int64(9)), words(jax.random.fold_in(theirs, 9))
    )


def test_bits_are_those_of_jax(theirs: Any) -> None:
    cases = [(shape, bits) for shape in ((), (3, 5), (0, 2)) for bits in (8, 16, 32, 64)]
    expected = run_in_jax(lambda key: [jax.random.bits(key, s, f"uint{bits}") for s, bits in cases], theirs)
    found = drawn(lambda key: [pcp.random.bits(key, s, f"u{bits}") for s, bits in cases])
    for case, mine, other in zip(cases, found, expected, strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=str(case))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_those_of_jax(theirs: Any, dtype: str) -> None:
    name, shape = FLOATS[dtype], (40, 5)

    def draw(key: pcp.Tensor) -> Any:
        return (
            pcp.random.uniform(key, shape, dtype),
            pcp.random.uniform(key, shape, dtype, -2.0, np.float32(3)),
            pcp.random.normal(key, shape, dtype),
            pcp.random.truncated_normal(key, -1.0, 2.0, shape, dtype),
            pcp.random.exponential(key, shape, dtype),
            pcp.random.gumbel(key, shape, dtype),
        )

    def expected(key: Any) -> Any:
        return (
            jax.random.uniform(key, shape, name),
            jax.random.uniform(key, shape, name, -2.0, 3.0),
            jax.random.normal(key, shape, name),
            jax.random.truncated_normal(key, -1.0, 2.0, shape, name),
            jax.random.exponential(key, shape, name),
            jax.random.gumbel(key, shape, name, mode="low"),
        )

    step = float(jnp.finfo(name).eps)
    for mine, other in zip(drawn(draw), run_in_jax(expected, theirs), strict=True):
        assert mine.dtype == other.dtype
        mine, other = (np.asarray(part, np.float64) for part in (mine, other))
        np.testing.assert_allclose(mine, other, rtol=8 * step, atol=8 * step)


def test_integers_are_those_of_jax(theirs: Any) -> None:
    cases = [
        ("i32", 3, 117), ("i8", -5, 5), ("u8", 0, 256), ("i32", -(2**31), 2**31), ("i64", -3, 10**12), ("u64", 0, 7),
        ("u32", 9, 10),
    ]  # fmt: skip
    found = drawn(lambda key: [pcp.random.randint(key, (200,), low, high, d) for d, low, high in cases])
    for (dtype, low, high), mine in zip(cases, found, strict=True):
        expected = jax.random.randint(theirs, (200,), low, high, DType(dtype).numpy)
        np.testing.assert_array_equal(mine, expected, err_msg=f"{dtype} {low} {high}")


def test_choices_are_those_of_jax(theirs: Any) -> None:
    logits = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)
    rows, chance, sizes = np.arange(12.0).reshape(4, 3), np.float32(0.3), (1, 2, 1000)

    def draw(key: Any, logits: Any, rows: Any) -> Any:
        return (
            pcp.random.categorical(key, logits),
            *(pcp.random.permutation(key, size) for size in sizes),
            pcp.random.permutation(key, rows, 1),
            pcp.random.bernoulli(key, chance, (99,)),
        )

    def expected(key: Any) -> Any:
        return (
            jax.random.categorical(key, logits, mode="low"),
            *(jax.random.permutation(key, size) for size in sizes),
            jax.random.permutation(key, rows, 1),
            jax.random.bernoulli(key, chance, (99,)),
        )

    for mine, other in zip(drawn(draw, logits, rows), run_in_jax(expected, theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_choice_takes_slices() -> None:
    rows = np.arange(12.0).reshape(6, 2)
    some = drawn(lambda k, x: pcp.random.choice(k, x, (2, 2), replace=False), rows)
    assert some.shape == (2, 2, 2)
    assert len({tuple(row) for row in some.reshape(4, 2)}) == 4
    assert drawn(lambda k: pcp.random.choice(k, 3, (50,))).max() == 2


def test_numbers_are_distributed_as_they_say() -> None:
    def draw(key: pcp.Tensor) -> Any:
        return (
            pcp.random.uniform(key, 20000),
            pcp.random.normal(key, 20000),
            pcp.random.truncated_normal(key, -0.5, 0.5, (20000,)),
            pcp.random.categorical(key, pcp.broadcast_to(np.log([0.2, 0.5, 0.3]), (20000, 3))),
        )

    flat, bell, cut, classes = drawn(draw)
    assert (flat.min() >= 0, flat.max() < 1, abs(flat.mean() - 0.5) < 0.01) == (True, True, True)
    assert (abs(bell.mean()) < 0.03, abs(bell.std() - 1) < 0.02) == (True, True)
    assert (cut.min() > -0.5, cut.max() < 0.5) == (True, True)
    np.testing.assert_allclose(np.bincount(classes) / 20000, [0.2, 0.5, 0.3], atol=0.02)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda k: pcp.random.normal(k[0]), NoKey, r"a key of u32\[\] was given; expected u32\[2\]"),
        (lambda k: pcp.random.split(k.astype("i32")), NoKey, r"a key of i32\[2\]"),
        (
            lambda k: pcp.random.bits(k, (), "i32"),
            DTypeMismatch,
            "bits: element type i32 was given; expected u8",
        ),
        (
            lambda k: pcp.random.uniform(k, (), "i32"),
            DTypeMismatch,
            "uniform: element type i32 was given; expected f16",
        ),
        (lambda k: pcp.random.fold_in(k, 0.5), DTypeMismatch, "fold_in: the number is"),
        (
            lambda k: pcp.random.key(k),
            DTypeMismatch,
            r"key: the seed is u32\[2\]; expected an integer scalar",
        ),
        (
            lambda k: pcp.random.randint(k, (), 5, 5),
            ShapeMismatch,
            "randint: bounds 5 and 5 were given; expected low < high",
        ),
        (
            lambda k: pcp.random.randint(k, (), 0, 300, "u8"),
            DTypeMismatch,
            "u8 does not hold all integers from 0 to 299",
        ),
        (lambda k: pcp.random.randint(k, (), 0, 3, "f32"), DTypeMismatch, "expected an integer type"),
        (
            lambda k: pcp.random.choice(k, 3, (4,), replace=False),
            ShapeMismatch,
            "choice: 4 of 3 slices were asked for",
        ),
    ],
)
def test_a_wrong_request_is_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(function, pcp.random.key(0))
