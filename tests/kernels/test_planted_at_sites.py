"""What is wrong at a site only is found there, before it counts: planted kernels, and faults under random conditions."""

import functools
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.ir import Program
from pcp.kernels import FAMILIES, Claims, kernel_named, replaced, sites_of
from pcp.kernels.jax_lowering import lowered_text
from pcp.kernels.problems import problem
from pcp.planning.measuring.at_site import fault_at_site
from pcp.planning.measuring.index_ranges import site_ranges
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import Runnable
from pcp.rewrite.raising import raised
from pcp.rewrite.row import Effect
from tests.kernels import honest
from tests.kernels.bad import sites
from tests.kernels.planted import BEGINNING

TARGET = Target.of("cpu:0")


def subject_of(program: Program, folder: Path) -> Subject:
    recipe = Recipe(seed=3, sets=1, ranges=site_ranges(program))
    return Subject(Request(program, program, "plain", inputs=recipe, target=TARGET), folder)


def compiled(program: Program) -> Runnable:
    return Runnable(TARGET.compile(program, cache=False), program.arguments)


def found(subject: Subject, candidate: Runnable, claims: Claims) -> str:
    fault = fault_at_site(subject, candidate, claims, lambda _: None)
    return "" if fault is None else f"{fault[0]}: {fault[1]}"


def program_of(source: str, family: str, sizes: dict[str, int]) -> tuple[Program, Program]:
    """The problem, and what a planted kernel becomes for it."""
    of = problem(family, sizes=sizes)
    module: dict[str, Any] = {}
    exec(BEGINNING + source, module)  # harmless, and starting a process takes seconds
    function = functools.partial(module["kernel"], **of.attributes)
    return of.reference(), Program.parse(lowered_text(function, of.specs))


@pytest.mark.cpu
@pytest.mark.parametrize("each", sites.PLANTED, ids=str)
def test_what_is_wrong_at_a_site_is_found_there(each: sites.AtSite, tmp_path: Path) -> None:
    candidate = each.planted.plant(tmp_path / "kernel")
    reference, program = program_of(each.planted.source, candidate.family, each.sizes)
    assert found(subject_of(reference, tmp_path), compiled(program), candidate.claims)


HONEST = [each for each in honest.PLANTED if "outside(" not in each.source]
SIZES = {
    "product": {"b": 1, "m": 31, "k": 96, "n": 40},
    "softmax": {"rows": 13, "columns": 96},
    "normalisation": {"rows": 13, "width": 96},
    "attention": {"batch": 1, "queries": 13, "keys": 48, "heads": 2, "width": 8},
    "cross_entropy": {"rows": 13, "classes": 96},
    "embedding_gradient": {"count": 64, "rows": 32, "width": 13},
}


@pytest.mark.cpu
@pytest.mark.parametrize("family", SIZES)
def test_honest_ones_hold_at_a_site(family: str, tmp_path: Path) -> None:
    subject = None
    for each in HONEST:
        candidate = each.plant(tmp_path / each.name)
        if candidate.family == family:
            reference, program = program_of(each.source, family, SIZES[family])
            subject = subject or subject_of(reference, tmp_path)  # they share what is right
            assert not found(subject, compiled(program), candidate.claims), each.name


ROWS = {
    "normalisation": (pcp.nn.layer_norm, ((8, 96), (96,), (96,))),
    "softmax": (pcp.softmax, ((8, 96),)),
    "gelu": (pcp.nn.gelu, ((8, 96),)),
}


@pytest.mark.cpu
@pytest.mark.parametrize("family", ROWS)
def test_own_ones_hold_at_a_site(family: str, tmp_path: Path) -> None:
    function, shapes = ROWS[family]
    program = raised(pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes)))
    [site] = [each for each in sites_of(program, "cpu") if each.family == family]
    subject = subject_of(site.region, tmp_path)
    for name in site.kernels:
        kernel = kernel_named(name)
        assert not found(subject, compiled(replaced(site.region, kernel)), kernel.claims), name


def windowed_with_lengths(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    return pcp.nn.scaled_dot_product_attention(q, k, v, causal=True, window=3, key_lengths=lengths)


def windowed(q: Any, k: Any, v: Any) -> Any:
    return pcp.nn.scaled_dot_product_attention(q, k, v, causal=True, window=35)


ATTENTIONS = {
    "a query that sees one key, whose score is infinite": (windowed_with_lengths, (8, 9), (8, 9), True),
    "queries that one score takes all of": (windowed, (1, 70), (1, 140), False),
}


@pytest.mark.cpu
@pytest.mark.parametrize("case", ATTENTIONS)
def test_own_attention_holds_at_a_site(case: str, tmp_path: Path) -> None:
    function, queries, keys, has_lengths = ATTENTIONS[case]
    specs = [pcp.spec((*queries, 2, 4), "f32"), *[pcp.spec((*keys, 1, 4), "f32")] * 2]
    specs += [pcp.spec((queries[0],), "i32")] * has_lengths
    [site] = [
        each for each in sites_of(raised(pcp.trace(function, *specs)), "cpu") if each.family == "attention"
    ]
    subject = subject_of(site.region, tmp_path)
    for name in site.kernels:
        kernel = kernel_named(name)
        assert not found(subject, compiled(replaced(site.region, kernel)), kernel.claims), name


def test_one_pass_holds_where_the_mean_is_far_from_zero() -> None:
    kernel = FAMILIES["normalisation"].kernels["normalisation.one_pass"]
    program = raised(pcp.trace(pcp.nn.layer_norm, *(pcp.spec(n, "f32") for n in ((8, 300), (300,), (300,)))))
    [site] = [each for each in sites_of(program, "cpu") if each.family == "normalisation"]
    plan = pcp.plan(replaced(site.region, kernel))
    noise = np.random.default_rng(5).standard_normal((8, 300))
    for offset, spread in ((3e3, 1.0), (-1e6, 1.0), (1e6, 10.0), (0.0, 1.0), (1e4, 0.1)):
        x = (offset + spread * noise).astype(np.float32)
        wide = x.astype(np.float64)
        exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        one, zero = np.ones(300, np.float32), np.zeros(300, np.float32)
        assert np.abs(plan.run(x, one, zero)[0] - exact).max() < 1e-4, (offset, spread)
    outlier = noise.astype(np.float32)
    outlier[:, 0] = 1e5  # the element that distances are taken from
    wide = outlier.astype(np.float64)
    exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(plan.run(outlier, one, zero)[0], exact, rtol=1e-3, atol=1e-4)


Condition = Callable[..., bool]
CONDITIONS: dict[str, tuple[float, float, Condition]] = {
    "mean beyond": (0.7, 4, lambda x, _, threshold: _finite(x).mean() > 10**threshold),
    "mean below": (0.7, 4, lambda x, _, threshold: _finite(x).mean() < -(10**threshold)),
    "largest beyond": (1, 2, lambda x, _, threshold: np.abs(_finite(x)).max() > 10**threshold),
    "largest below": (-5, -1, lambda x, _, threshold: np.abs(_finite(x)).max() < 10**threshold),
    "a subnormal": (0, 1, lambda x, *_, **__: bool(((x != 0) & (np.abs(x) < 1e-38)).any())),
    "zeros": (0.3, 0.9, lambda x, _, threshold: (x == 0).mean() > threshold),
    "constant": (0, 1, lambda x, *_, **__: bool((x == x.flat[0]).all())),
    "ascending": (0.8, 0.95, lambda x, _, threshold: (np.diff(_finite(x)) > 0).mean() > threshold),
    "one sign": (0, 1, lambda x, *_, **__: bool((x > 0).all() or (x < 0).all())),
    "minus infinity": (0, 1, lambda x, *_, **__: bool(np.isneginf(x).any())),
    "a later call": (2, 20, lambda _, call, threshold: call >= threshold),
    "other sizes of rows": (1.5, 2, lambda x, _, threshold: _finite(x).std(-1).max() > threshold),
    "the second call": (0, 1, lambda _, call, **__: call == 2),
    "another thread": (0, 1, lambda *_, **__: threading.current_thread() is not threading.main_thread()),
    "always": (0, 1, lambda *_, **__: True),
}
"""Between which numbers a threshold is drawn, and whether it is reached by operands and the number of the call."""
FAULTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "zeros": np.zeros_like,
    "NaN": lambda y: np.full_like(y, np.nan),
    "one NaN": lambda y: np.where(np.arange(y.size).reshape(y.shape) == y.size // 3, np.float32(np.nan), y),
    "halves": lambda y: y * np.float32(0.5),
    "a part too much": lambda y: y * np.float32(1.4),
    "a row lost": lambda y: np.where(np.arange(len(y))[:, None] == len(y) - 1, np.float32(0), y),
    "constant": lambda y: np.full_like(y, np.float32(0.7)),
}


def _finite(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(np.isfinite(x), x, 0.0).astype(np.float64)


class Adversary:
    """An honest softmax but under a condition."""

    def __init__(
        self, honest: Runnable, condition: Callable[[np.ndarray[Any, Any], int], bool], fault: Any
    ) -> None:
        self._honest, self._condition, self._fault = honest.executable, condition, fault
        self.memory, self.calls = self._honest.memory, 0

    def run(self, buffers: Any) -> list[Any]:
        self.calls += 1
        wrong = self._condition(np.array(buffers[0]), self.calls)
        [y] = map(np.array, self._honest.run(buffers))
        made = self._fault(y).astype(y.dtype) if wrong else y
        return [TARGET.place(made, pcp.spec(made.shape, "f32").spec)]


@pytest.mark.cpu
def test_faults_under_random_conditions_are_found(tmp_path: Path) -> None:
    program = pcp.trace(lambda x: pcp.softmax(x, -1), pcp.spec((40, 64), "f32"))
    subject, honest_one = subject_of(program, tmp_path), compiled(program)
    seed = secrets.randbits(32)
    print(f"the seed of the adversaries is {seed}")
    rng = np.random.default_rng(seed)
    missed = []
    for name, (low, high, condition) in CONDITIONS.items():
        for _ in range(3):
            fault, threshold = str(rng.choice(list(FAULTS))), rng.uniform(low, high)
            adversary = Adversary(
                honest_one, functools.partial(condition, threshold=threshold), FAULTS[fault]
            )
            for nonfinite in ("exact", "spreads"):
                if nonfinite == "spreads" and name == "minus infinity" and "NaN" in fault:
                    continue  # this is what it claims: beside an operand that is not finite, others' results may be NaN
                candidate = Runnable(adversary, program.arguments)
                adversary.calls = 0
                if not found(subject, candidate, Claims(Effect.reassociating, nonfinite)):
                    missed.append(f"{fault} where {name} {threshold}, claiming {nonfinite}")
    assert missed == [], seed
    assert not found(subject, honest_one, Claims(Effect.exact))


@pytest.mark.cpu
def test_calls_that_are_given_the_memory_of_operands_are_tried(tmp_path: Path) -> None:
    program = pcp.trace(lambda x: pcp.softmax(x, -1), pcp.spec((40, 64), "f32"))
    subject, plain = subject_of(program, tmp_path), compiled(program)
    given = program.donating()
    assert [entry.alias for entry in given.arguments] == [0]
    assert given.donating() is given
    honest_one = compiled(given)
    for first in (1, 2):
        wrong = Runnable(
            Adversary(honest_one, lambda _, call, first=first: call >= first, FAULTS["halves"]),
            given.arguments,
        )
        fault = fault_at_site(
            subject, plain, Claims(Effect.reassociating), lambda _: None, lambda wrong=wrong: wrong
        )
        assert fault is not None
        where = (
            "in whose memory results are written" if first == 1 else "whose memory was that of results before"
        )
        assert fault[1] == (
            f"at its site it returns something else for the same operands {where}, by more than roundings"
        )
    assert (
        fault_at_site(subject, plain, Claims(Effect.reassociating), lambda _: None, lambda: honest_one)
        is None
    )
