"""Tests of what is chosen by times and errors, of the cost model, and of the ranges of indices."""

import math

import pytest

import pcp
from pcp.ir import Program
from pcp.kernels import kernel_named, sites_of
from pcp.planning.measuring.index_ranges import index_ranges
from pcp.planning.paths.preparation import prepared
from pcp.planning.prediction.cost_model import estimated_seconds
from pcp.planning.search.selection import ErrorModel, saved, select
from pcp.planning.search.site_classes import SiteClass, site_classes
from pcp.planning.search.tuning import Alternative, MeasuredClass
from pcp.tensor import Tensor


def classes_of(*alternatives: list[tuple[str, float, float]]) -> list[MeasuredClass]:
    """Classes with alternatives given as kernel, seconds saved and error."""
    made = []
    for index, each in enumerate(alternatives):
        sites = SiteClass(str(index), Program(b""), (), (), 1, 1.0)
        options = [Alternative(kernel_named(name), 0.5, gain, error) for name, gain, error in each]
        made.append(MeasuredClass(sites, 1.0, [*options, Alternative(None, 1.0, 0.0, 0.0)]))
    return made


BF16, X3 = "product.xla:bf16", "product.xla:bf16_x3"


def chosen(classes: list[MeasuredClass], tolerance: float, model: ErrorModel) -> list[str]:
    selection = select(classes, tolerance, model, set(), 0.9)
    return ["plain" if (k := selection[each.sites.digest].kernel) is None else k.name for each in classes]


def test_at_first_whatever_is_exact_enough_alone_is_chosen() -> None:
    classes = classes_of([(BF16, 3.0, 1e-2), (X3, 1.0, 1e-5)], [(BF16, 2.0, 1e-3)])
    model = ErrorModel.of(classes)
    assert chosen(classes, 1e-1, model) == [BF16, BF16]
    assert chosen(classes, 5e-3, model) == [X3, BF16]
    assert chosen(classes, 1e-4, model) == [X3, "plain"]


def test_the_class_that_pays_least_for_its_error_moves_first() -> None:
    classes = classes_of([(BF16, 1.0, 1e-3)], [(BF16, 5.0, 1e-3)], [(BF16, 3.0, 1e-3)])
    model = ErrorModel.of(classes)
    everything = select(classes, 1e-2, model, set(), 0.9)
    assert saved(everything) == 9.0
    model.learn(everything, math.sqrt(3) * 1e-3)
    assert chosen(classes, 1.6e-3, model) == ["plain", BF16, BF16]
    assert chosen(classes, 1.2e-3, model) == ["plain", BF16, "plain"]


def test_weights_are_learnt_from_whole_programs() -> None:
    classes = classes_of([(BF16, 1.0, 1e-3)], [(BF16, 1.0, 1e-3)])
    model = ErrorModel.of(classes)
    both = select(classes, 1.0, model, set(), 0.9)
    model.learn(both, 1e-1)
    assert model.predicted(both) == pytest.approx(1e-1, rel=1e-3)
    first = both | {"1": classes[1].alternatives[-1]}
    model.learn(first, 1e-3)  # so the second class is to blame
    assert model.predicted(first) == pytest.approx(1e-3, rel=1e-2)
    assert model.predicted(both) == pytest.approx(1e-1, rel=1e-2)
    assert chosen(classes, 5e-3, model) == [BF16, "plain"]


def test_what_did_not_work_is_not_chosen_again() -> None:
    classes = classes_of([(BF16, 3.0, 1e-2), (X3, 1.0, 1e-5)])
    selection = select(classes, 1.0, ErrorModel.of(classes), {("0", BF16)}, 0.9)
    assert selection["0"].kernel is kernel_named(X3)


def test_equal_sites_are_one_class_whatever_the_number_of_layers() -> None:
    def layers(count: int) -> Program:
        def function(x: Tensor, w: Tensor) -> Tensor:
            for _ in range(count):
                x = pcp.tanh(x @ w)
            return x

        return pcp.trace(function, pcp.spec((8, 16), "f32"), pcp.spec((16, 16), "f32"))

    for count in (2, 12):
        [only] = site_classes(layers(count), "cpu")
        assert (only.uses, len(only.sites), only.family) == (count, count, "product")
        assert only.signature == "product (f32[8,16], f32[16,16]) -> f32[8,16]"


def test_tolerance_0_leaves_only_kernels_that_change_no_bit() -> None:
    program = pcp.trace(lambda x: x @ x, pcp.spec((8, 8), "f32"))
    assert site_classes(program, "cpu")[0].kernels
    assert site_classes(program, "cpu", 0.0)[0].kernels == ()


def test_constrained_products_are_left_as_they_are() -> None:
    text = """func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32> }"""
    assert site_classes(Program.parse(text), "cpu") == []


def test_the_cost_model_knows_loops_and_element_types() -> None:
    def product(dtype: str) -> Program:
        return pcp.trace(lambda x: x @ x, pcp.spec((256, 256), dtype))

    def repeated(trips: int) -> Program:
        return pcp.trace(
            lambda x: pcp.fori_loop(0, trips, lambda _, y: pcp.tanh(y @ x), x), pcp.spec((256, 256), "f32")
        )

    assert estimated_seconds(product("bf16")) < estimated_seconds(product("f32"))
    assert estimated_seconds(product("f32")) < estimated_seconds(product("f64"))
    assert estimated_seconds(repeated(10)) == pytest.approx(10 * estimated_seconds(repeated(1)), rel=0.05)


def test_a_site_in_loops_counts_as_often_as_it_runs() -> None:
    def inner(_: Tensor, y: Tensor) -> Tensor:
        return pcp.fori_loop(0, 3, lambda _, z: pcp.nn.softmax(z @ z), y)

    def function(x: Tensor) -> Tensor:
        y = pcp.fori_loop(0, 5, inner, x)
        return y @ y

    program = pcp.trace(function, pcp.spec((8, 8), "f32"))
    uses = {(site.family, site.trips) for site in sites_of(prepared(program), "cpu")}
    assert uses == {("product", 15), ("product", 1), ("softmax", 15)}
    assert {(each.family, each.uses) for each in site_classes(prepared(program), "cpu")} == {
        ("product", 16),
        ("softmax", 15),
    }

    def until(x: Tensor) -> Tensor:
        return pcp.while_loop(lambda y: y.sum() < 1.0, lambda y: y @ y, x)

    unknown = prepared(pcp.trace(until, pcp.spec((8, 8), "f32")))
    assert [site.trips for site in sites_of(unknown, "cpu")] == [1]


def test_ranges_of_indices_are_those_of_what_they_index() -> None:
    def function(table: Tensor, tokens: Tensor, targets: Tensor, count: Tensor) -> Tensor:
        rows = table[tokens]
        picked = pcp.take_along_axis(rows, targets[:, None], axis=1)
        return picked.sum() + pcp.convert(count, "f32")

    program = pcp.trace(
        function, pcp.spec((11, 7), "f32"), pcp.spec((5,), "i32"), pcp.spec((5,), "i32"), pcp.spec((), "i32")
    )
    assert set(index_ranges(program)) == {("tokens", 0, 11), ("targets", 0, 7)}
    one_hot = pcp.trace(lambda labels: pcp.one_hot(labels, 9), pcp.spec((5,), "i32"))
    assert index_ranges(one_hot) == (("labels", 0, 9),)
    assert index_ranges(pcp.trace(lambda x: x + x, pcp.spec((5,), "i32"))) == ()
    ids, lengths = pcp.spec((2, 6), "i32"), pcp.spec((2,), "i32")
    read = pcp.trace(lambda lengths: pcp.arange(6)[None] < lengths[:, None], lengths)
    assert index_ranges(read) == (("lengths", 1, 6),)  # a sample of nothing would be divided by nothing
    places = pcp.trace(
        lambda places, w: (w[places], pcp.arange(6)[None] < places), ids, pcp.spec((6, 3), "f32")
    )
    assert index_ranges(places) == (("places", 0, 6),)
