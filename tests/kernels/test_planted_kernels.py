"""Wrong kernels are refused, whatever is wrong with them, and sound ones accepted at the tolerance that they deserve."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pcp.backends import Target
from pcp.planning.measuring.bench import Bench
from pcp.planning.verification import Verdict, verify
from tests.kernels import honest
from tests.kernels.bad import behaviour, places, processes, ranges, values
from tests.kernels.planted import Planted

BAD = [*values.PLANTED, *places.PLANTED, *behaviour.PLANTED, *ranges.PLANTED, *processes.PLANTED]
HANGING = [planted for planted in BAD if planted.kind == "hangs"]
# One of every class, those that show soonest.
SAMPLE = [
    "embedding_gradient.zeros", "embedding_gradient.secretly_bf16", "softmax.denormals_are_ones",
    "product.infinities_are_large", "product.nan_is_zero", "product.of_absolutes", "product.saturates",
    "normalisation.without_epsilon", "product.without_the_last_of_an_odd_sum", "softmax.wrong_for_one_row",
    "softmax.reads_past_the_end", "embedding_gradient.without_the_last_index", "softmax.leaves_out_the_last_rows",
    "product.first_result_for_ever", "softmax.noise_of_one_bit", "softmax.in_bf16", "softmax.twice",
    "attention.leaves", "softmax.eats_memory", "product.raises", "softmax.cannot_be_imported",
    "softmax.gradient_without_the_sum", "attention.sees_256_keys",
    "embedding_gradient.halved_over_200_hits", "softmax.zeros_on_every_1500th_call", "softmax.recognises_by_limits",
]  # fmt: skip
SEED = 7


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(seconds=60.0, memory_bytes=4 << 30) as made:
        yield made


@pytest.fixture(scope="module")
def impatient() -> Iterator[Bench]:
    with Bench(seconds=3.0, memory_bytes=4 << 30) as made:
        yield made


@pytest.fixture(autouse=True)
def _as_many_calls_as_show_it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is wrong in one of 1,500 calls; tests that take long make all calls of a verification."""
    if not request.node.get_closest_marker("long"):
        monkeypatch.setattr("pcp.planning.verification.user_process.MANY_CALLS", 1600)


ON_A_GPU = {
    # An exception or a signal in what a GPU's program calls on the host arrives as the error of whoever waited for it.
    "raises": {"compile error", "run error", "crash"},
    "crashes": {"run error", "crash", "out of memory"},
}
"""Which other faults a kind may be refused for there."""


def tried(planted: Planted, folder: Path, bench: Bench, keep_going: bool = False) -> Verdict:
    target = Target.of(None)
    if planted.kind == "eats memory" and target.device.kind != "cpu":
        pytest.skip(
            "beside a GPU's driver, which reserves all it can, a limit of address space means nothing"
        )
    return verify(planted.plant(folder), bench, target, seed=SEED, keep_going=keep_going)


def refused(verdict: Verdict, planted: Planted) -> bool:
    expected = set(planted.faults)
    if Target.of(None).device.kind != "cpu":
        expected |= ON_A_GPU.get(planted.kind, set())
    return not verdict.accepted and bool({each.fault.value for each in verdict.findings} & expected)


def test_there_are_enough_of_them() -> None:
    assert len({planted.name for planted in BAD}) == len(BAD) >= 100
    assert len({planted.kind for planted in BAD}) >= 20
    assert len({planted.name for planted in honest.PLANTED}) == len(honest.PLANTED) >= 28
    assert {name for name in SAMPLE} <= {planted.name for planted in BAD}


@pytest.mark.cpu
@pytest.mark.share(3)
@pytest.mark.parametrize("planted", [each for each in BAD if each.name in SAMPLE], ids=str)
def test_one_of_each_class_is_refused(planted: Planted, tmp_path: Path, bench: Bench) -> None:
    verdict = tried(planted, tmp_path, bench)
    assert refused(verdict, planted), str(verdict)
    assert verdict.tolerances == {}


def test_one_that_hangs_is_refused(tmp_path: Path, impatient: Bench) -> None:
    verdict = tried(HANGING[0], tmp_path, impatient)
    assert refused(verdict, HANGING[0]), str(verdict)
    assert "it took more than 3 s and was killed" in str(verdict)


def test_an_honest_one_is_accepted(tmp_path: Path, bench: Bench) -> None:
    rounding = next(each for each in honest.PLANTED if each.name == "embedding_gradient.bf16_updates")
    sizes = ", ".join(
        f"{name} = {{ at_least = {size}, at_most = {size} }}"
        for name, size in (("count", 64), ("rows", 32), ("width", 32))
    )
    one_problem = replace(rounding, manifest=f"[conditions]\nsizes = {{ {sizes} }}")
    verdict = tried(one_problem, tmp_path, bench)
    assert verdict.accepted, str(verdict)
    assert (verdict.problems, verdict.tolerances) == (1, {"f32": rounding.tolerance})
    assert verdict.ratio is not None
    assert verdict.ratio > 0
    secret = replace(one_problem, effect="reassociating")
    assert not tried(secret, tmp_path / "secret", bench).accepted


def test_one_whose_last_bits_vary_is_accepted_and_never_exact(tmp_path: Path, bench: Bench) -> None:
    [varying] = [each for each in honest.PLANTED if each.name == "softmax.last_bits_vary"]
    sizes = "sizes = { rows = { at_least = 8, at_most = 8 }, columns = { at_least = 16, at_most = 16 } }"
    small = replace(varying, manifest=f"{varying.manifest}[conditions]\n{sizes}")
    verdict = tried(small, tmp_path, bench)
    assert verdict.accepted, str(verdict)
    assert 0.0 < verdict.noise < 2e-7
    assert not verdict.to_json()["deterministic"]
    assert "not deterministic: calls on the same operands differ by up to " in str(verdict)
    exact = replace(small, effect="exact")
    assert not tried(exact, tmp_path / "exact", bench).accepted


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("planted", [each for each in BAD if each.kind != "hangs"], ids=str)
def test_every_bad_one_is_refused(planted: Planted, tmp_path: Path, bench: Bench) -> None:
    verdict = tried(planted, tmp_path, bench)
    assert refused(verdict, planted), str(verdict)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("planted", HANGING, ids=str)
def test_every_one_that_hangs_is_refused(planted: Planted, tmp_path: Path, impatient: Bench) -> None:
    verdict = tried(planted, tmp_path, impatient)
    assert refused(verdict, planted), str(verdict)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("planted", honest.PLANTED, ids=str)
def test_every_honest_one_is_accepted(planted: Planted, tmp_path: Path, bench: Bench) -> None:
    verdict = tried(planted, tmp_path, bench, keep_going=True)
    assert verdict.accepted, str(verdict)
    assert planted.tolerance is not None
    # Processors and compilers round differently: one step to either side is as good.
    assert planted.tolerance / 2.6 <= verdict.tolerances["f32"] <= planted.tolerance * 2.6, str(verdict)
