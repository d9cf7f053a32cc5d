"""Where measuring each kernel alone would take too long, the whole says which families are of no use in it."""

from dataclasses import replace
from pathlib import Path as FilePath

import pytest
from tests.planning.fake_bench import FakeBench, kernels, set_strategy, tried_together

import pcp
from pcp import nn
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Family, Kernel, register_kernel
from pcp.kernels.artifact import StableHLO
from pcp.kernels.named import is_named
from pcp.kernels.storage import F32, TF32
from pcp.planning.measuring.bench import PlainProgramFailed
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import site_classes
from pcp.rewrite.row import Effect
from pcp.rewrite.terms import Pattern, apply, value
from pcp.tensor import Tensor, current_builder

pytestmark = pytest.mark.usefixtures("bench")


def program() -> Program:
    """Six sines and three logarithms, which take 9 seconds as they are written."""
    specs = [pcp.spec((size, size), "f32") for size in (4, 5, 6)]
    return pcp.trace(lambda *x: tuple(pcp.log1p(pcp.sin(pcp.sin(each) + 1.0)) for each in x), *specs)


@pytest.fixture
def whole_only(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  (whose families these are)
    """Nothing is measured but whole programs, and all families have kernels that are tried first."""
    set_strategy(monkeypatch, large_seconds=0.0, settled_on=())
    tried_together(monkeypatch, "sine.fast")
    tried_together(monkeypatch, "log1p.other")
    measure = FakeBench.measure

    def measured(self: FakeBench, request: Request) -> object:
        if request.timing_seconds and "@" in request.path:
            raise PlainProgramFailed("a kernel alone", is_of_all=False)
        return measure(self, request)

    monkeypatch.setattr(FakeBench, "measure", measured)


@pytest.mark.usefixtures("whole_only")
def test_a_family_that_the_whole_is_faster_without_is_left_out(bench: FakeBench, file: FilePath) -> None:
    bench.seconds["exponential_minus_one"] = 1.5  # for 1.0 of the logarithm itself
    plan = pcp.plan(program(), tolerance=1e-1, database=file)
    assert kernels(plan) == {"sine.fast": 6}
    assert len(bench.duels) == 2  # without one family each, against what is the fastest then
    bench.requests.clear()
    assert pcp.plan(program(), tolerance=1e-1, database=file, budget=0).path == plan.path
    assert not bench.requests


@pytest.mark.usefixtures("whole_only")
def test_a_family_stays_where_the_whole_is_slower_without_it(bench: FakeBench, file: FilePath) -> None:
    plan = pcp.plan(program(), tolerance=1e-1, database=file)
    assert kernels(plan) == {"sine.fast": 6, "log1p.other": 3}
    assert len(bench.duels) == 2


@pytest.mark.usefixtures("whole_only")
def test_a_device_on_which_compiling_takes_long_has_no_duels_of_families(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_strategy(monkeypatch, settled_on=("cpu", "cuda"))
    bench.seconds["exponential_minus_one"] = 1.5
    assert kernels(pcp.plan(program(), tolerance=1e-1, database=file)) == {"sine.fast": 6, "log1p.other": 3}
    assert not bench.duels


@pytest.mark.usefixtures("whole_only")
def test_within_a_small_tolerance_all_families_come_together_with_kernels_that_round_no_further(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_together(monkeypatch, "sine.fast", "sine.middle")
    for family, name in (("sine", "sine.fast"), ("log1p", "log1p.other")):
        kernels_of = FAMILIES[family].kernels
        monkeypatch.setitem(kernels_of, name, replace(kernels_of[name], effect=Effect.reassociating))
    bench.errors |= {"tanh": 1e-6, "exponential_minus_one": 1e-6}
    plan = pcp.plan(program(), tolerance=1e-5, database=file)
    assert kernels(plan) == {"sine.fast": 6, "log1p.other": 3}
    assert not any(
        "logistic" in each.candidate.text for each in bench.wholes if isinstance(each.candidate, Program)
    )


@pytest.mark.usefixtures("whole_only")
def test_the_strongest_whole_is_measured_again_where_noise_hides_that_it_is_faster(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = bench.measure

    def disturbed(request: Request) -> Measurement:
        found = measure(request)
        if sum(each is not request for each in bench.wholes):
            return found
        return replace(found, seconds=(2.3, 4.0, 12.0), plain_seconds=(8.0, 9.0, 3.9))

    monkeypatch.setattr(bench, "measure", disturbed)
    assert kernels(pcp.plan(program(), tolerance=1e-1, database=file)) == {"sine.fast": 6, "log1p.other": 3}


def test_without_kernels_that_round_further_each_family_comes_with_the_fastest_of_the_others() -> None:
    """Families have different numbers of levels: one whose last level rounds takes part by an earlier one."""
    x, w = pcp.spec((2, 16, 32), "f32"), pcp.spec((32, 96), "f32")
    attended = pcp.trace(
        lambda x, w: nn.layer_norm(
            nn.attention(x, {"qkv": {"weight": w}, "out": {"weight": w[:, :32]}}, 4), w[0, :32], w[1, :32]
        ),
        x,
        w,
    )
    classes = site_classes(prepared(attended), "cpu")
    if not any(kernel.name == "product.native" for each in classes for kernel in each.kernels):
        pytest.skip("there is no C++ compiler")
    exact = [{kernel.name for kernel in level.values()} for level in together(classes, 0.0)]
    assert exact == [{"product.native", "attention.native", "normalisation.native"}]
    assert {"product.native:bf16", "attention.native:bf16"} < {
        each.name for each in next(together(classes)).values()
    }


@pytest.mark.usefixtures("whole_only")
@pytest.mark.parametrize("bits", [11, 12])
def test_kernels_that_keep_enough_bits_take_part_and_exact_ones_come_last(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sines, logarithms = FAMILIES["sine"], FAMILIES["log1p"]
    tried = {"storage": F32, "together": lambda _: 0}
    for kernel in (
        replace(sines.kernels["sine.fast"], **{**tried, "storage": TF32}),
        replace(sines.kernels["sine.bitwise"], **tried),
    ):
        monkeypatch.setitem(sines.kernels, kernel.name, kernel)
    other = replace(logarithms.kernels["log1p.other"], effect=Effect.exact, **tried)
    monkeypatch.setitem(logarithms.kernels, "log1p.other", other)
    classes = site_classes(prepared(program()), "cpu")
    levels = [
        {kernel.name for kernel in level.values() if kernel.family == "sine"}
        for level in together(classes, 2.0**-bits)
    ]
    assert levels == [{"sine.fast"}, {"sine.bitwise"}][bits - 11 :]


@pytest.mark.usefixtures("whole_only")
def test_without_a_family_others_stand_where_its_sites_hid_theirs(
    bench: FakeBench, file: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(op: ir.Operation) -> list[Tensor]:
        return [pcp.cos(Tensor(op.operands[0], current_builder()))]

    def counted(program: Program) -> dict[str, int]:
        main = program.text.partition("func.func private")[
            0
        ]  # a group that a kernel stands for is a function
        return {name: main.count(f"stablehlo.{name} ") for name in bench.seconds}

    monkeypatch.setattr("tests.planning.fake_bench.counted", counted)
    both = Pattern("tests.both", {"both": (apply("log_plus_one", apply("sine", value("x"))),)})
    family = Family("both", "logarithms of sines", is_named(both.name), pattern=both)
    monkeypatch.setitem(FAMILIES, "both", family)
    kernel = Kernel(
        "both.slow", "for tests", lambda _: True, StableHLO(build), effect=Effect.lowers_precision
    )
    register_kernel(kernel)
    tried_together(monkeypatch, "both.slow")
    pairs = pcp.trace(
        lambda *x: tuple(pcp.log1p(pcp.sin(each)) for each in x),
        *(pcp.spec((n, n), "f32") for n in (4, 5, 6)),
    )
    plan = pcp.plan(pairs, tolerance=1e-1, database=file)  # 0.9 of 2 seconds together, 0.7 apart
    assert kernels(plan) == {"sine.fast": 3, "log1p.other": 3}
