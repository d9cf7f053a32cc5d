"""Several operations are one site: found, computed by one kernel, and chosen or not where they overlap with others."""

from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import Target
from pcp.kernels import OverlappingSites, Site, apply_kernels, cover, kernel_named, sites_of
from pcp.planning.exploration import exploration
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.selection import ErrorModel, select
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from pcp.planning.search.tuning import Alternative, MeasuredClass
from tests.execution import exactly

ROWS = pcp.spec((6, 40), "f32")
VECTOR = pcp.spec((40,), "f32")
NATIVE = "residual_normalisation.native"


def ready(function: Any, *specs: Any) -> pcp.Program:
    return prepared(pcp.trace(function, *specs))


def groups(program: pcp.Program) -> list[Site]:
    return [site for site in sites_of(program, "cpu") if site.family == "residual_normalisation"]


def close(program: pcp.Program, changed: pcp.Program) -> None:
    """Both compute the same, as float64 does."""
    random = np.random.default_rng(3)
    arguments = [random.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    exact = exactly(program, *arguments)
    found = pcp.plan(changed).run(*arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), b, atol=2e-5, rtol=2e-5)


def layer(x: Any, r: Any, s: Any, b: Any) -> Any:
    total = x + r
    return total, nn.layer_norm(total, s, b)


def root_mean_square(x: Any, r: Any, s: Any, b: Any) -> Any:  # noqa: ARG001  (as the other)
    total = x + r
    return total, nn.rms_norm(total, s)


def used_between(x: Any, r: Any, s: Any, b: Any) -> Any:
    total = x + r
    other = pcp.sin(total) * 2.0  # stands before the norm, and uses what the group returns
    return nn.layer_norm(total, s, b) + other


def same_twice(x: Any, r: Any, s: Any, b: Any) -> Any:  # noqa: ARG001  (as the others)
    return nn.layer_norm(x + x, s, b)


@pytest.mark.cpu
@pytest.mark.parametrize("function", [layer, root_mean_square, used_between, same_twice])
def test_a_kernel_computes_residual_and_norm(function: Any) -> None:
    program = ready(function, ROWS, ROWS, VECTOR, VECTOR)
    (site,) = groups(program)
    assert len(site.takes) == 2
    assert len(site.region.results) == 2
    changed = apply_kernels(program, {site.key: kernel_named(NATIVE)})
    assert str(changed.module()).count("pcp.residual_norm@") == 1
    assert 'composite "pcp' not in str(changed.module())
    close(program, changed)


def test_what_leads_back_into_a_group_is_none() -> None:
    def function(x: Any, r: Any) -> Any:
        total = x + r
        return nn.layer_norm(total, total.sum(0))

    assert not groups(ready(function, ROWS, ROWS))


@pytest.mark.cpu
def test_of_groups_that_wait_for_each_other_one_is_left_out() -> None:
    """Each norm's scale is made of the other's sum: either can stand alone."""

    def function(x: Any, r: Any, y: Any, s: Any) -> Any:
        first, second = x + r, y + s
        return nn.rms_norm(first, second.sum(0)), nn.rms_norm(second, first.sum(0)), first, second

    program = ready(function, *[ROWS] * 4)
    (site,) = groups(program)
    close(program, apply_kernels(program, {site.key: kernel_named(NATIVE)}))


@pytest.mark.cpu
def test_operations_of_a_group_that_others_use_go_behind_it() -> None:
    def function(x: Any, r: Any, s: Any) -> Any:
        return nn.rms_norm(x + r, s), (x + r) * 2.0, pcp.sin(pcp.cos(x + r))

    program = ready(function, ROWS, ROWS, VECTOR)
    (site,) = groups(program)
    close(program, apply_kernels(program, {site.key: kernel_named(NATIVE)}))


@pytest.mark.cpu
def test_groups_in_the_body_of_a_loop() -> None:
    def function(x: Any, scales: Any) -> Any:
        def body(carry: Any, scale: Any) -> Any:
            total = carry + pcp.tanh(carry)
            return nn.rms_norm(total, scale) + total, total.sum()

        return pcp.scan(body, x, scales)

    program = ready(function, ROWS, pcp.spec((3, 40), "f32"))
    (site,) = groups(program)
    close(program, apply_kernels(program, {site.key: kernel_named(NATIVE)}))


@pytest.mark.cpu
def test_the_kernel_hands_its_statistics_to_the_gradient() -> None:
    def loss(x: Any, r: Any, s: Any, b: Any) -> Any:
        total, normed = layer(x, r, s, b)
        return (normed * normed * total).sum()

    step = pcp.value_and_grad(
        pcp.rewrite.raising.raised(pcp.trace(loss, ROWS, ROWS, VECTOR, VECTOR)), wrt=(0, 1, 2, 3)
    )
    program = prepared(step)
    (site,) = groups(program)
    (gradient,) = (each for each in sites_of(program, "cpu") if each.family == "normalisation_gradient")
    chosen = {site.key: kernel_named(NATIVE), gradient.key: kernel_named("normalisation_gradient.native")}
    changed = apply_kernels(program, chosen)
    call = next(line for line in str(changed.module()).splitlines() if "norm_gradient@" in line)
    assert call.partition("(")[2].partition(")")[0].count("%") == 5
    close(program, changed)


def overlapping() -> tuple[pcp.Program, Site, Site]:
    """A program, the site of a residual and its norm, and that of the norm alone."""
    program = pcp.trace(layer, ROWS, ROWS, VECTOR, VECTOR)
    (group,) = groups(prepared(program))
    (norm,) = (each for each in sites_of(prepared(program), "cpu") if each.family == "normalisation")
    assert norm.takes < group.takes
    return program, group, norm


def test_sites_that_overlap_are_not_both_chosen() -> None:
    program, group, norm = overlapping()
    both = {group.key: kernel_named(NATIVE), norm.key: kernel_named("normalisation.two_passes")}
    with pytest.raises(
        OverlappingSites, match=f"site {group.key[:12]} of residual_normalisation and for {norm.key[:12]}"
    ):
        apply_kernels(prepared(program), both)
    assert cover([norm, group]) == [group]
    assert cover([norm]) == [norm]
    classes = site_classes(prepared(program), "cpu")
    found = kernels_by_site(classes, {each.digest: each.kernels[0] for each in classes})
    assert set(found) == {group.key}
    apply_kernels(prepared(program), found)


def test_what_is_inside_of_a_composite_goes_with_the_group_around_it() -> None:
    outer = Site("a", "mine", ready(pcp.tanh, ROWS), (), "", takes=frozenset({"a"}))
    inner = Site("b", "mine", outer.region, (), "", inside=("a",), takes=frozenset({"b"}))
    group = Site("c", "mine", outer.region, (), "", takes=frozenset({"a", "d"}))
    apart = Site("e", "mine", outer.region, (), "", takes=frozenset({"e"}))
    assert [each.key for each in cover([inner, outer, apart])] == ["a", "e"]
    assert [each.key for each in cover([inner, apart])] == ["e", "b"]
    assert [each.key for each in cover([inner, outer, group, apart])] == ["c", "e"]


@pytest.mark.parametrize(("group_saves", "wins"), [(0.5, "residual_normalisation"), (1e-4, "normalisation")])
def test_the_selection_takes_the_side_that_saves_more(group_saves: float, wins: str) -> None:
    program, *_ = overlapping()
    classes = site_classes(prepared(program), "cpu")
    plain = Alternative(None, 1.0, 0.0, 0.0)
    tuned = []
    for each in classes:
        saves = group_saves if len(each.sites[0].takes) > 1 else 0.01
        tuned.append(MeasuredClass(each, 1.0, [Alternative(each.kernels[0], 0.5, saves, 1e-7), plain]))
    chosen = select(tuned, 1e-2, ErrorModel.of(tuned), set(), 0.9)
    assert [each.family for each in classes if chosen[each.digest].kernel is not None] == [wins]


@pytest.mark.cpu
def test_paths_never_name_both_and_are_followed_from_their_files() -> None:
    program, group, norm = overlapping()
    seen = set()
    for path in exploration.paths(program, "cpu:0"):
        names = set(path.choices)
        assert not {group.key, norm.key} <= names
        seen |= names
    assert seen == {group.key, norm.key}
    path = Path.from_json(Path.of(program, {group.key: kernel_named(NATIVE)}).to_json())
    path.check_sites(program, Target.of("cpu:0"))
    close(program, pcp.plan(program, path=path).lowered)


def test_what_a_machine_lacks_for_a_group_is_said() -> None:
    program, *_ = overlapping()
    with kernels.features.masked("library:normalisation"):
        assert not groups(prepared(program))
        missing = kernels.missing_kernels(kernels.sites_of(prepared(program), "cpu", bare=True))
    assert NATIVE in missing["PCP_MASK_FEATURES hides library:normalisation"]
