"""The parameters of a decoder, as its row says: drawn, or only described."""

import math
from typing import Any

from pcp.models.config import DecoderConfig
from pcp.models.parameters import DEVIATION, Leaf, Parameters, described, drawn

_OF_GPT2 = {"embedding": "wte", "places": "wpe", "norm_1": "ln_1", "norm_2": "ln_2", "norm": "ln_f"}


def initial_parameters(config: DecoderConfig, seed: int = 0) -> Parameters:
    """Random float32 parameters: normal with deviation 0.02, residual projections with 0.02 / sqrt(2 layers).

    Arguments:
        config: the sizes.
        seed: of a counter-based generator; equal seeds give equal parameters on every machine.
    """
    return _nested(config, drawn(seed))


def parameter_shapes(config: DecoderConfig) -> Parameters:
    """The `TensorSpec` of each array that `initial_parameters` makes, nested alike; no memory is taken."""
    return _nested(config, described)


def _nested(config: DecoderConfig, leaf: Leaf) -> Parameters:
    width, residual = config.width, DEVIATION / math.sqrt(2 * config.layers)
    queries, shared = config.heads * config.head_width, config.key_value_heads * config.head_width

    def linear(name: str, inputs: int, outputs: int, deviation: float = DEVIATION) -> Parameters:
        bias = {"bias": leaf((outputs,), 0, 0)} if name in config.biases else {}
        return {"weight": leaf((inputs, outputs), deviation, 0)} | bias

    def norm(size: int = width) -> Parameters:
        scale = {"scale": leaf((size,), 0, 0 if config.one_more else 1)}
        return scale | ({"bias": leaf((size,), 0, 0)} if "norm" in config.biases else {})

    def attention() -> Parameters:
        if config.joined:
            parts = {"qkv": linear("qkv", width, queries + 2 * shared)}
        else:
            sizes = {"query": queries, "key": shared, "value": shared}
            parts = {kind: linear(kind, width, size) for kind, size in sizes.items()}
        if config.query_key_norm:
            whole = config.query_key_norm == "whole"
            parts["query_norm"] = norm(queries if whole else config.head_width)
            parts["key_norm"] = norm(shared if whole else config.head_width)
        return parts | {"out": linear("out", queries, width, residual)}

    def mlp(hidden: int) -> Parameters:
        gate = {"gate": linear("gate", width, hidden)} if config.gated else {}
        return gate | {"up": linear("up", width, hidden), "down": linear("down", hidden, width, residual)}

    def feed_forward(layer: int) -> Parameters:
        if config.experts is None or not config.has_experts(layer):
            return mlp(config.hidden)
        count, hidden = config.experts.count, config.experts.hidden
        inner, outer = (count, width, hidden), (count, hidden, width)
        many = {
            "gate": leaf(inner, DEVIATION, 0),
            "up": leaf(inner, DEVIATION, 0),
            "down": leaf(outer, residual, 0),
        }
        routed = {"router": leaf((width, count), DEVIATION, 0), "experts": many}
        if not config.experts.shared:
            return routed
        return routed | {"shared": mlp(config.experts.shared), "shared_gate": leaf((width, 1), DEVIATION, 0)}

    def block(layer: int) -> Parameters:
        after = config.norms_after
        return (
            {named("norm_1", config): norm(), "attn": attention()}
            | ({"norm_1_after": norm()} if after else {})
            | {named("norm_2", config): norm(), "mlp": feed_forward(layer)}
            | ({"norm_2_after": norm()} if after else {})
        )

    def table(rows: int) -> Any:
        return leaf((rows, width), DEVIATION, 0)

    return (
        {named("embedding", config): table(config.vocabulary)}
        | ({} if config.rotary else {named("places", config): table(config.context)})
        | {"blocks": [block(layer) for layer in range(config.layers)], named("norm", config): norm()}
        | ({} if config.tied else {"head": table(config.vocabulary)})
    )


def named(part: str, config: DecoderConfig) -> str:
    """The name of a part among the parameters: GPT-2's runs have names of their own on disk."""
    return _OF_GPT2.get(part, part) if config.family == "gpt2" else part
