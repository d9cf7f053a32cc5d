"""What a composite holds are sites, too: a kernel covers the composite, or kernels stand inside of it."""

import jax
import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.kernels import Kernel, Site, UnknownSite, apply_kernels, kernel_named, sites_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.named import tensors
from pcp.kernels.products.product import Product
from pcp.planning.exploration import exploration
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.selection import ErrorModel, select
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from pcp.planning.search.tuning import Alternative, MeasuredClass
from pcp.rewrite.raising import raised
from pcp.rewrite.row import Effect
from tests.execution import run


def _scaled(op: ir.Operation) -> list[pcp.Tensor]:
    return [Product.of(op).emit(*tensors(op)) * (1.0 + 2.0**-10)]


SCALED = Kernel(
    "product.scaled", "for tests", lambda _: True, StableHLO(_scaled), effect=Effect.lowers_precision
)


def attention() -> Program:
    """Attention and its gradient, and a product of its own before."""

    def loss(x: pcp.Tensor, w: pcp.Tensor, k: pcp.Tensor, v: pcp.Tensor) -> pcp.Tensor:
        q = (x @ w).reshape((2, 24, 2, 8))
        return (nn.scaled_dot_product_attention(q, k, v, causal=True) ** 2).sum()

    each = pcp.spec((2, 24, 2, 8), "f32")
    return pcp.value_and_grad(
        raised(pcp.trace(loss, pcp.spec((48, 16), "f32"), pcp.spec((16, 16), "f32"), each, each)),
        wrt=(1, 2, 3),
    )


def sites() -> list[Site]:
    return list(sites_of(attention(), "cpu"))


def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=each.spec.shape).astype(np.float32) for each in attention().arguments]


def test_products_inside_of_attention_are_sites() -> None:
    outer = {site.key: site.family for site in sites() if not site.inside}
    inner = [site for site in sites() if site.inside]
    assert {"attention", "attention_gradient"} <= set(outer.values())
    for family, least in (("attention", 2), ("attention_gradient", 4)):
        (key,) = (key for key, name in outer.items() if name == family)
        products = [site for site in inner if site.inside == (key,) and site.family == "product"]
        assert len(products) >= least
    assert len({site.key for site in sites()}) == len(sites())


def test_kernels_stand_inside() -> None:
    program = attention()
    chosen = {site.key: SCALED for site in sites() if site.inside and site.family == "product"}
    changed = apply_kernels(program, chosen)
    assert 'composite "pcp.attention' not in str(changed.module())
    found, plain = (jax.tree.leaves(run(each, *arguments())) for each in (changed, program))
    errors = [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, plain, strict=True)]
    assert all(1e-4 < error < 1e-1 for error in errors)


def test_a_path_says_what_stands_inside_and_is_followed() -> None:
    program = attention()
    ready = prepared(program)
    inner = next(site for site in sites_of(ready, "cpu") if site.inside and site.family == "product")
    path = Path.from_json(Path.of(program, {inner.key: kernel_named("product.xla:bf16_x3")}).to_json())
    plan = pcp.plan(program, path=path)
    assert "bf16" in str(plan.lowered.module())


def test_a_composite_and_what_is_inside_are_not_both_chosen() -> None:
    program = attention()
    outer = next(site for site in sites() if site.family == "attention")
    inner = next(site for site in sites() if outer.key in site.inside)
    both = {outer.key: kernel_named("attention.whole"), inner.key: kernel_named("product.xla:bf16")}
    with pytest.raises(UnknownSite, match=inner.key[:12]):
        apply_kernels(program, both)
    classes = site_classes(program, "cpu")
    chosen = {each.digest: each.kernels[0] for each in classes}
    found = kernels_by_site(classes, chosen)
    assert outer.key in found
    assert inner.key not in found
    apply_kernels(program, found)


@pytest.mark.parametrize(("outer_saves", "wins"), [(0.5, "gradient"), (1e-4, "product")])
def test_the_selection_covers_by_what_saves_more(outer_saves: float, wins: str) -> None:
    classes = site_classes(attention(), "cpu")
    attentive = next(each for each in classes if each.family == "attention_gradient")
    inner = [each for each in classes if any(attentive.sites[0].key in site.inside for site in each.sites)]
    covered = [each for each in inner if all(attentive.sites[0].key in site.inside for site in each.sites)]
    assert covered
    tuned = []
    for each in (attentive, *inner):
        saves = outer_saves if each is attentive else 0.01
        plain = Alternative(None, 1.0, 0.0, 0.0)
        tuned.append(MeasuredClass(each, 1.0, [Alternative(each.kernels[0], 0.5, saves, 1e-7), plain]))
    chosen = select(tuned, 1e-2, ErrorModel.of(tuned), set(), 0.9)
    assert (chosen[attentive.digest].kernel is not None) == (wins == "gradient")
    assert all((chosen[each.digest].kernel is not None) == (wins == "product") for each in covered)


def test_paths_never_name_both() -> None:
    program = attention()
    known = {site.key: site for site in sites_of(prepared(program), "cpu")}
    for _, path in zip(range(40), exploration.paths(program, "cpu:0"), strict=False):
        names = set(path.choices)
        assert not any(names.intersection(known[name].inside) for name in names)
