"""What the forward pass of a step keeps for its backward pass, with the fastest kernels for a GPU of all families."""

import math
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import DType, Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.dataflow import defining_op, result_owner
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import flatten, inline_calls
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import map_tree
from pcp.kernels import apply_kernels, cover, kernel_named, sites_of
from pcp.models import decoder
from pcp.models.published import gpt2_config, llama_config
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from pcp.rewrite.again import Again
from tests.execution import run
from tests.kernels.gpu.emulated import HERE, emulate
from tests.replay.machine import machine

BATCH, CONTEXT, WIDTH, HIDDEN = 4, 64, 256, 1024
SIZES = {"heads": 4, "width": WIDTH, "context": CONTEXT, "vocabulary": 512}
MODELS: dict[str, Any] = {
    "llama": lambda layers: llama_config(**SIZES, layers=layers, key_value_heads=2, hidden=HIDDEN),
    "gpt2": lambda layers: gpt2_config(**SIZES, layers=layers),
}
_MOVES = ("stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose")


def _step(name: str, layers: int) -> Program:
    config = MODELS[name](layers)
    params = map_tree(pcp.specs_of, decoder.initial_parameters(config, seed=3))
    tokens = pcp.spec((BATCH, CONTEXT), "i32")
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), params, tokens, tokens)
    return prepared(pcp.value_and_grad(loss, wrt=0))


def _kept(name: str, layers: int) -> int:
    """Bytes that are made before the gradient of the loss and read behind it, each value in the fewest bits that it has."""
    with machine():
        program = _step(name, layers)
        classes = site_classes(program, "cuda")
        chosen = kernels_by_site(classes, next(together(classes, math.inf)))
        module = apply_kernels(program, chosen).module()
    inline_calls(module)
    flatten(module)
    operations = [view.operation for view in entry_block(module).operations]
    place = {op: number for number, op in enumerate(operations)}
    is_of_loss = [
        "Gradient" in str(op.attributes["call_target_name"]) if op.name == "stablehlo.custom_call" else False
        for op in operations
    ]
    cut = is_of_loss.index(True)
    kept: dict[Value, int] = {}
    for reader in operations[cut:]:
        for value in reader.operands:
            if defining_op(value) is not None and place[result_owner(value)] < cut:
                source, size = _source(value, reader)
                kept[source] = min(size, kept.get(source, size))
    return sum(kept.values())


def _source(value: Value, reader: ir.Operation) -> tuple[Value, int]:
    """What a value was before it was moved and widened, and its bytes; as much as it is read in, where that is less."""
    spec = spec_of(value.type)
    size = spec.bytes
    if reader.name == "stablehlo.convert" and spec_of(reader.results[0].type).dtype is DType.bf16:
        size = spec.size * 2
    while (op := defining_op(value)) is not None and op.name in _MOVES:
        value = op.operands[0]
        size = min(size, spec_of(value.type).bytes)
    return value, 0 if defining_op(value) is None else size


@pytest.mark.parametrize(
    ("name", "own"),
    [
        # x and the sum behind attention, the result of attention, queries, keys and values of half as many heads; gate and up.
        ("llama", 2 * (2 * WIDTH + WIDTH + 2 * WIDTH + 2 * HIDDEN)),
        # The same of all heads; what GELU takes.
        ("gpt2", 2 * (2 * WIDTH + WIDTH + 3 * WIDTH + HIDDEN)),
    ],
)
def test_a_layer_keeps_what_its_products_made_in_bfloat16_and_nothing_that_is_made_of_it(
    name: str, own: int
) -> None:
    """Beside it, for each token and head, what attention normalises by. No norm is kept, no activation, and nothing in float32."""
    a_token = (_kept(name, 4) - _kept(name, 2)) / 2 / BATCH / CONTEXT
    assert own <= a_token <= own + 4 * SIZES["heads"]


NAMES = {
    "product": "product.xla:bf16+result",
    "gated_silu": "gated_silu.triton:bf16",
    "gated_silu_gradient": "gated_silu_gradient.triton:bf16",
    "gelu": "gelu.triton:bf16",
    "gelu_gradient": "gelu_gradient.triton:bf16",
    "residual_normalisation": "residual_normalisation.triton:bf16+sum",
    "normalisation_gradient": "normalisation_gradient.triton:bf16+sum",
}


def _loss(x: Any, residual: Any, gate: Any, up: Any, down: Any, scale: Any, bias: Any) -> Any:
    """A norm with bias of a sum, a gated activation, and GELU with a bias, each read by a product."""
    total = x + residual
    y = pcp.nn.layer_norm(total, scale, bias)
    y = (pcp.nn.silu(y @ gate) * (y @ up)) @ down
    y = pcp.nn.gelu(y @ gate + up[0]) @ down
    return ((total + y) ** 2).sum()


SHAPES = ((64, 128), (64, 128), (128, 256), (128, 256), (256, 128), (128,), (128,))


def test_what_is_written_again_is_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    if not HERE:
        emulate(monkeypatch)
    specs = [pcp.spec(each, "f32") for each in SHAPES]
    program = prepared(pcp.value_and_grad(pcp.trace(_loss, *specs), wrt=tuple(range(7))))
    sites = cover(site for site in sites_of(program, "cuda") if site.family in NAMES)
    chosen = {site.key: kernel_named(NAMES[site.family]) for site in sites}
    assert {kernel.family for kernel in chosen.values()} == set(NAMES)
    again = apply_kernels(program, chosen)
    monkeypatch.setattr(Again, "of", lambda *_: None)
    kept = apply_kernels(program, chosen)
    assert again.digest != kept.digest
    rng = np.random.default_rng(2)
    given = [(rng.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32) for shape in SHAPES]
    found, before, right = (run(each, *given)[1] for each in (again, kept, program))
    for one, other, exact in zip(found, before, right, strict=True):
        assert np.linalg.norm(one - other) <= 1e-6 * np.linalg.norm(exact)
        assert np.linalg.norm(one - exact) <= 2e-2 * np.linalg.norm(exact)
