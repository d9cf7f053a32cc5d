"""A search keeps in fewer bits what products read and make, as far as that is faster and exact enough."""

import json
import re
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import use

import pcp
from pcp.ir import Program
from pcp.ops.linear.stored import FORMATS
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.forms.stored import stored_forms
from pcp.planning.forms.tried import reading
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.kinds import STORED, NotAPath
from pcp.planning.paths.kinds.stored import argument_in
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.preparation import prepared
from pcp.planning.paths.transfer import transferred
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.whole import Whole
from pcp.rewrite.stored import products_in

pytestmark = pytest.mark.cpu  # where the strategy of these tests looks for them
BLOCK = (1.0, 1.004, 0.997, 1.002, 0.999)


def layers() -> Program:
    """Two products with a bias each."""
    return pcp.trace(
        lambda x, w, v, b: pcp.tanh(x @ w + b) @ v,
        *(pcp.spec(shape, "f32") for shape in ((160, 96), (96, 128), (128, 64), (128,))),
    )


class Bench:
    """A program takes as long as its values of float32 are large, and is as wrong as it keeps some in bfloat16."""

    def __init__(self, error_of_one: float = 1e-3) -> None:
        self.paths: list[str] = []
        self.error_of_one = error_of_one

    def measure(self, request: Request) -> Measurement:
        """Make up a measurement."""
        assert isinstance(request.candidate, Program)
        self.paths.append(request.path)
        plain, mine = (
            1e-3 + 1e-8 * sum(each.bytes for each in products_in(program))
            for program in (request.subject, request.candidate)
        )
        kept = len(re.findall(r"-> tensor<[\dx]+xbf16>", request.candidate.text))
        error = 1e-7 + self.error_of_one * kept
        failure = Failure.inaccurate if request.tolerance is not None and error > request.tolerance else None
        seconds = () if failure else tuple(mine * each for each in BLOCK)
        return Measurement(
            request.subject.digest, request.path, hardware_of(pcp.backends.Target.of()).digest, versions(),
            seconds, tuple(plain * each for each in BLOCK) if seconds else (),
            error, 1e-7, 1000, failure, "made up" if failure else "", when=1.0, judgement=Judgement("0"),
        )  # fmt: skip


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> Any:
    """Plans where processors gain by values of fewer bits, and there are no kernels."""
    monkeypatch.setattr("pcp.kernels.sites.family_of", lambda _: None)
    monkeypatch.setattr("pcp.kernels.sites.groups_in", lambda _: [])
    monkeypatch.setattr("pcp.planning.conditions.STRATEGY", Strategy(stored_on=("cpu",)))

    def plan(bench: Bench, tolerance: float) -> pcp.Plan:
        use(bench, monkeypatch)  # type: ignore[arg-type]  # it measures, too
        return pcp.plan(layers(), tolerance=tolerance, database=tmp_path / "profile.sqlite")

    return plan


def test_all_that_products_read_and_make_is_kept_in_fewer_bits(planned: Any) -> None:
    plan = planned(bench := Bench(), 2e-2)
    assert plan.path.stored == (("factors", "bf16"), ("results", "bf16"))
    assert "stored      of products all factors and all results in bf16" in str(plan)
    assert plan.to_json()["stored"] == {"factors": "bf16", "results": "bf16"}
    x, w, v, b = arrays = [
        np.random.default_rng().standard_normal(entry.spec.shape, np.float32) for entry in layers().arguments
    ]
    exact = np.tanh(x.astype(np.float64) @ w + b) @ v
    error = np.linalg.norm(plan.run(*arrays) - exact) / np.linalg.norm(exact)
    assert 1e-5 < error < 2e-2
    path = Path.from_json(plan.path.to_json())
    assert path == plan.path
    assert pcp.plan(layers(), path=path).run(*arrays).tobytes() == plan.run(*arrays).tobytes()
    measured = len(bench.paths)
    assert planned(bench, 2e-2).path == plan.path
    assert len(bench.paths) == measured  # all was known


def test_what_is_too_wrong_is_kept_less(planned: Any) -> None:
    plan = planned(Bench(error_of_one=4e-3), 1.7e-2)  # four factors and two results
    assert plan.path.stored == (("factors", "bf16"),)


def test_classes_alone_where_a_role_is_too_wrong(planned: Any) -> None:
    plan = planned(Bench(error_of_one=6e-3), 2e-2)
    names = [name for name, _ in plan.path.stored]
    assert names
    assert all(name.startswith("factors ") for name in names)


def test_nothing_is_tried_where_the_path_keeps_all_in_fewer_bits_already() -> None:
    program, target = layers(), pcp.backends.Target.of("cpu:0")
    whole = Whole(program, 1e-2, target)
    evidence = evidence_of(Conditions(target, 1 << 30, None, 0.0, strategy=Strategy(stored_on=("cpu",))))
    form = (STORED.move("bf16", "factors"), STORED.move("bf16", "results"))
    assert list(stored_forms(Path.of(program, forms=form), whole, evidence)) == []
    assert next(stored_forms(whole.plain, whole, evidence)) == form


def test_angles_of_positions_are_no_product() -> None:
    """Positions times frequencies are written as a product over one place, and positions above 256 are wrong in bfloat16."""

    def rotated(x: pcp.Tensor, frequencies: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
        positions = pcp.ops.iota((1, x.shape[0]), 1, "f32")
        return (x * pcp.cos((frequencies.reshape(-1, 1) @ positions).T)) @ w

    shapes = [pcp.spec(shape, "f32") for shape in ((1024, 64), (64,), (64, 64))]
    whole = Whole(pcp.trace(rotated, *shapes), 1e-2, pcp.backends.Target.of("cpu:0"))
    assert [each.factors for each in products_in(whole.prepared)] == [("factors 1024x64", "factors 64x64")]


def test_a_tolerance_below_bfloat16_leaves_all_as_it_is(planned: Any) -> None:
    plan = planned(bench := Bench(error_of_one=1e-9), 1e-3)
    assert plan.path.stored == ()
    assert len(bench.paths) <= 2


@pytest.mark.parametrize(
    "entry",
    [
        *([["factors", "int3"]], [["weights", "bf16"]], [["factors 4xq", "bf16"]], [["factors"]], "factors"),
        *([["factors", "int8"]], [["argument", "int8"]], [["argument 01", "int8"]], [["argument 1", "int3"]]),
        *(
            [["state 3", "int8"]],
            [["argument -1", "int8"]],
            [["argument 1", 8]],
            [["argument 9999999999", "int8"]],
        ),
    ],
    ids=str,
)
def test_an_entry_that_is_none(entry: object) -> None:
    whole = json.loads(Path(layers().digest, (STORED.move("bf16", "factors"),), prepared="1" * 64).to_json())
    with pytest.raises(
        NotAPath,
        match=r"stored.*pairs of a class of values, as 'factors' or 'results 64x32', and one of bf16, or of an "
        "argument, as 'argument 3', and one of bf16, int8, int8_blocks, fp8, fp8_e5m2, int4, or of a moment, as 'state 3', and "
        "bf16: plan again",
    ):
        Path.from_json(json.dumps(whole | {"stored": entry}))


def test_parts_and_sizes() -> None:
    form = (STORED.move("bf16", "factors"),)
    assert STORED.moved is not None
    assert STORED.moved(form, layers()) == form
    assert STORED.moved((STORED.move("bf16", "factors 160x96"),), layers()) is None
    assert STORED.moved((argument_in(1, "int8"),), layers()) == (argument_in(1, "int8"),)
    assert "bf16" in prepared(layers(), forms=form).text


def test_a_path_of_other_sizes_at_which_an_argument_is_too_small() -> None:
    def product(size: int) -> Program:
        return pcp.trace(lambda w, x: x @ w, pcp.spec((size, 128), "f32"), pcp.spec((1, size), "f32"))

    path = Path.of(product(256), forms=(argument_in(0, "int8"),))
    larger = transferred(path, product(256), product(512), "cpu")
    assert larger is not None
    assert larger.stored == (("argument 0", "int8"),)
    assert transferred(path, product(256), product(64), "cpu") is None


def test_a_path_of_an_argument_that_there_is_not() -> None:
    path = replace(Path.of(token(), forms=(argument_in(0, "int8"),)), moves=(argument_in(9, "int8"),))
    with pytest.raises(PathMismatch, match="argument 9 is kept in int8, and the program takes 5: plan again"):
        pcp.plan(token(), path=path)


class OfBound:
    """A program takes as long as the matrices that it reads are large, and is as wrong as these are rounded."""

    def __init__(self, scale: float = 1.0) -> None:
        self.kept: list[tuple[str, ...]] = []
        self.scale = scale

    def measure(self, request: Request) -> Measurement:
        """Make up a measurement."""
        assert isinstance(request.candidate, Program)
        pattern = r"composite .*: \(tensor<[^>]*>, tensor<\d+x\d+x(\w+)>"
        names = {each.dtype.mlir: each.name for each in FORMATS.values() if each.name != "int8_blocks"}
        forms = [names[each] for each in re.findall(pattern, request.candidate.text)]
        sizes = [FORMATS[each].row_bytes(1024) for each in forms] + [4096] * (
            3 if not request.bound else 3 - len(forms)
        )
        error = 1e-7 + self.scale * sum(0.16 * 4.0 ** -FORMATS[each].bits for each in forms) ** 0.5
        self.kept.append(tuple(forms))
        failure = Failure.inaccurate if request.tolerance is not None and error > request.tolerance else None
        seconds = () if failure else tuple(sum(sizes) * each * 1e-6 for each in BLOCK)
        plain = tuple(3 * 4096 * each * 1e-6 for each in BLOCK) if seconds else ()
        return Measurement(
            request.subject.digest, request.path, hardware_of(pcp.backends.Target.of()).digest, versions(),
            seconds, plain, error, 1e-7, 1000, failure, "made up" if failure else "", when=1.0, judgement=Judgement("0"),
        )  # fmt: skip


def token(rows: int = 1) -> Program:
    """Three matrices and a vector."""

    def function(weights: Any, x: Any) -> Any:
        return pcp.tanh(pcp.tanh(x @ weights["a"] + weights["bias"]) @ weights["b"]) @ weights["c"]

    shapes = {"a": (128, 256), "b": (256, 128), "bias": (256,), "c": (128, 144)}
    return pcp.trace(
        function,
        {name: pcp.spec(shape, "f32") for name, shape in shapes.items()},
        pcp.spec((rows, 128), "f32"),
    )


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> Any:
    """Plans of programs whose weights are bound, without kernels."""
    monkeypatch.setattr("pcp.kernels.sites.family_of", lambda _: None)
    monkeypatch.setattr("pcp.kernels.sites.groups_in", lambda _: [])

    def plan(bench: OfBound, tolerance: float, program: Program | None = None, **options: Any) -> pcp.Plan:
        use(bench, monkeypatch)  # type: ignore[arg-type]  # it measures, too
        options = {"binds": ("weights",), "database": tmp_path / "profile.sqlite"} | options
        return pcp.plan(program or token(), tolerance=tolerance, **options)

    return plan


def test_bound_matrices_are_kept_in_as_few_bits_as_are_exact_enough(bound: Any) -> None:
    plan = bound(bench := OfBound(), 5e-2)
    assert plan.path.stored == tuple((f"argument {number}", "int8") for number in (0, 1, 3))
    assert "stored      3 arguments in int8, bytes with a scale for each row" in str(plan)
    assert "bound once  84.1 KiB from 3 values" in str(plan)
    assert plan.to_json()["stored"] == {f"argument {number}": "int8" for number in (0, 1, 3)}
    weights, x = RandomState.weights(), RandomState.x()
    exact = np.tanh(np.tanh(x @ weights["a"] + weights["bias"]) @ weights["b"]) @ weights["c"]
    given = plan.bind(weights).run(x)
    assert 1e-3 < np.linalg.norm(given - exact) / np.linalg.norm(exact) < 3e-2
    path = Path.from_json(plan.path.to_json())
    assert path == plan.path
    assert pcp.plan(token(), path=path).bind(weights).run(x).tobytes() == given.tobytes()
    measured = len(bench.kept)
    assert bound(bench, 5e-2).path == plan.path
    assert len(bench.kept) == measured  # all was known


class RandomState:
    """What the program is given."""

    @staticmethod
    def weights() -> dict[str, np.ndarray]:
        rng, entries = np.random.default_rng(0), token().arguments
        names = ("a", "b", "bias", "c")
        return {
            name: 0.1 * rng.standard_normal(entry.spec.shape, np.float32)
            for name, entry in zip(names, entries, strict=False)
        }

    @staticmethod
    def x() -> np.ndarray:
        return np.random.default_rng(1).standard_normal((1, 128), np.float32)


def test_a_form_is_measured_with_the_kernels_that_read_it() -> None:
    forms = tuple(argument_in(number, form) for number, form in ((0, "int8"), (1, "int4"), (3, "fp8")))
    whole = Whole(token(), 5e-2, pcp.backends.Target.of("cpu:0"), forms=forms, bound=4)
    kernels = reading(whole)
    assert [kernel.name for kernel in kernels.values()] == ["quantised_product.native"] * 2  # none is of fp8
    path = whole.path(kernels)
    assert path.bound == (0, 1, 2, 3)
    weights, x = RandomState.weights(), RandomState.x()
    written = pcp.plan(token(), path=Path.of(token(), forms=forms)).bind(weights).run(x)
    np.testing.assert_allclose(
        pcp.plan(token(), path=path).bind(weights).run(x), written, rtol=1e-4, atol=1e-4
    )
    assert reading(replace(whole, forms=())) == {}


def test_the_fewest_bits_come_first_and_some_may_have_more(bound: Any) -> None:
    plan = bound(bench := OfBound(), 0.18)
    assert set(dict(plan.path.stored).values()) == {"int4"}
    assert ("int4",) * 3 in bench.kept
    plan = bound(bench := OfBound(), 0.125, database=None)  # of three, two may be in int4
    assert sorted(dict(plan.path.stored).values()) == ["int4", "int8", "int8"]
    assert bench.kept.index(("int4",) * 3) < len(bench.kept) - 1


def test_what_is_too_wrong_in_bytes_is_tried_as_floating_point_numbers(bound: Any) -> None:
    plan = bound(bench := OfBound(scale=4.0), 5e-2, database=None)
    assert [each for each in bench.kept if each][:3] == [("int8",) * 3, ("fp8",) * 3, ("fp8_e5m2",) * 3]
    assert set(dict(plan.path.stored).values()) == {"bf16"}


@pytest.mark.parametrize(
    ("options", "rows", "tolerance"),
    [({"binds": ()}, 1, 5e-2), ({}, 9, 5e-2), ({}, 1, 1e-3)],
    ids=["nothing is bound", "many rows", "a small tolerance"],
)
def test_matrices_stay_as_they_are(bound: Any, options: dict[str, Any], rows: int, tolerance: float) -> None:
    plan = bound(bench := OfBound(), tolerance, token(rows), **options)
    assert plan.path.stored == ()
    assert not any(bench.kept)
