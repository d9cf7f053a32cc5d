"""Native dropout keeps what the program keeps, number for number, in the forward and in the backward pass."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import ExecutionFailed
from pcp.ir import DType, TensorSpec
from pcp.kernels.native import LIBRARIES, native_call
from pcp.planning.paths.preparation import prepared
from tests.execution import run
from tests.kernels.native.programs import native_path

RNG = np.random.default_rng()


def both(program: pcp.Program, *given: Any) -> tuple[Any, Any]:
    """What the program gives as it is written, and by native kernels."""
    path = native_path(program)
    assert path.choices
    return run(program, *given), np.asarray(pcp.plan(program, path=path, cache=False).run(*given))


# One vector, several, several steps of the loop and a rest, several parts of the work and a rest.
@pytest.mark.parametrize(
    ("size", "rate"), [(1, 0.1), (16, 0.5), (63, 0.97), (77, 1e-9), (1000, 0.1), ((1 << 15) + 5, 0.3)]
)
def test_the_mask_is_that_of_the_program(size: int, rate: float) -> None:
    x, key = RNG.normal(size=size).astype("f4"), pcp.random.key(int(RNG.integers(1 << 62)))

    def gradient(x: Any, key: Any) -> Any:
        return pcp.grad(lambda x: (nn.dropout(x, key, rate) ** 2).sum())(x)

    for function in (lambda x, key: nn.dropout(x, key, rate), gradient):
        plain, found = both(pcp.trace(function, x, key), x, key)
        np.testing.assert_array_equal(found == 0, plain == 0)
        np.testing.assert_allclose(found, plain, rtol=1e-6)


def test_all_words_at_the_border_of_the_share_are_told_apart() -> None:
    """Shares that are multiples of 2^-23, and those next to them: what is below is kept, and nothing else."""
    key = pcp.random.key(int(RNG.integers(1 << 62)))
    words = np.asarray(run(pcp.trace(lambda k: pcp.random.bits(k, (200,)), key), key) >> 9, np.float64)
    x, word = np.ones(200, "f4"), float(np.sort(words)[50])
    for share in (word / 2**23, (word + 0.25) / 2**23, (word + 1) / 2**23):
        plain, found = both(pcp.trace(lambda x, k, r=1 - share: nn.dropout(x, k, r), x, key), x, key)
        np.testing.assert_array_equal(found != 0, words < float(np.float32(share)) * 2.0**23)
        np.testing.assert_array_equal(found == 0, plain == 0)


def test_what_is_dropped_is_zero_whatever_it_was() -> None:
    x = np.resize(np.float32([np.nan, np.inf, -np.inf, 1e38, 1e-45, -0.0]), 300)
    key = pcp.random.key(7)
    plain, found = both(pcp.trace(lambda x, k: nn.dropout(x, k, 0.5), x, key), x, key)
    np.testing.assert_array_equal(found, plain)


def test_shares_of_one_are_no_site_and_float64_keeps_the_plain_form() -> None:
    key = pcp.spec((2,), "u32")
    for dtype, able in (("f64", []), ("bf16", ["dropout.native"])):
        program = pcp.trace(lambda x, k: nn.dropout(x, k, 0.5), pcp.spec((8,), dtype), key)
        assert [name for site in kernels.sites_of(prepared(program), "cpu") for name in site.kernels] == able


@pytest.mark.parametrize(
    ("key", "takes", "makes", "below", "words"),
    [
        (3, (6,), (6,), 5, "the key does not have two words"),
        (2, (2, 3), (2, 3), 5, "x has shape [2,3]; expected [size]"),
        (2, (6,), (5,), 5, "the result has shape [5]; expected that of x"),
        (2, (6,), (6,), -1, "numbers are kept below -1; expected 0 to 2^23"),
        (2, (6,), (6,), (1 << 23) + 1, "numbers are kept below 8388609; expected 0 to 2^23"),
    ],
)
def test_the_handler_refuses_what_it_is_not_for(
    key: int, takes: tuple[int, ...], makes: tuple[int, ...], below: int, words: str
) -> None:
    told = {"below": below, "by": 0.5, "divides": 1}
    result = TensorSpec(makes, DType.f32)
    program = pcp.trace(
        lambda k, x: native_call(LIBRARIES["dropout"], "dropout", (k, x), (result,), told)[0],
        pcp.spec((key,), "u32"),
        pcp.spec(takes, "f32"),
    )
    with pytest.raises(ExecutionFailed) as raised:
        pcp.plan(program).run(np.zeros(key, "u4"), np.zeros(takes, "f4"))
    assert words in str(raised.value)
