"""Composites that name sites travel where that is asked for, and come back as they were."""

import pcp
from pcp import nn
from pcp.ir import Program
from pcp.kernels import sites_of
from pcp.rewrite.raising import raised


def step() -> Program:
    """A loss with attention and a layer norm, and its gradient."""

    def loss(q: pcp.Tensor, k: pcp.Tensor, v: pcp.Tensor, s: pcp.Tensor) -> pcp.Tensor:
        mixed = nn.scaled_dot_product_attention(q, k, v, causal=True)
        return nn.layer_norm(mixed, s).sum()

    each = pcp.spec((2, 6, 2, 4), "f32")
    return pcp.value_and_grad(
        raised(pcp.trace(loss, each, each, each, pcp.spec((4,), "f32"))), wrt=(0, 1, 2, 3)
    )


def test_named_sites_travel_and_keep_their_keys() -> None:
    program = step()
    sent = Program.from_artifact(program.artifact(named=True))
    assert sent.digest == program.digest
    found = {(site.key, site.family, site.kernels) for site in sites_of(sent, "cpu")}
    assert found == {(site.key, site.family, site.kernels) for site in sites_of(program, "cpu")}
    assert {"attention", "attention_gradient", "normalisation_gradient"} <= {family for _, family, _ in found}


def test_by_default_they_are_written_out() -> None:
    sent = Program.from_artifact(step().artifact())
    assert sent.digest == step().digest
    assert "composite" not in str(sent.module())


def test_policies_keep_named_sites_and_one_that_keeps_everything_changes_nothing() -> None:
    program = raised(
        pcp.trace(lambda x, s: nn.layer_norm(x, s).sum(), pcp.spec((3, 4), "f32"), pcp.spec((4,), "f32"))
    )
    plain, kept = pcp.value_and_grad(program), pcp.value_and_grad(program, remat="everything")
    assert kept == plain
    nothing = pcp.value_and_grad(program, remat="nothing")
    assert nothing != plain
    assert "pcp.layer_norm.vjp" in str(kept.module())
    assert "pcp.layer_norm.vjp" in str(nothing.module())
