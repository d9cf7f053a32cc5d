"""Low-rank matrices beside the weights of any program: the numbers are those of merged matrices, and only the factors move."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.importers.lora import NotAdaptable
from pcp.ir.tree import map_tree
from pcp.training.recipes.adapters import LoraSettings
from pcp.training.recipes.config import InvalidTrainingConfig
from pcp.training.step import evaluation_step

RNG = np.random.default_rng(5)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def loss(p: Any, tokens: pcp.Tensor, x: pcp.Tensor) -> pcp.Tensor:
    """Matrices as (inputs, outputs), as (outputs, inputs), as the left operand, turned, and looked up as well."""
    h = pcp.tanh(x @ p["layers"]["in_out"])
    h = pcp.tanh(pcp.ops.dot_general(h, p["layers"]["out_in"], ((2,), (1,))))
    h = pcp.ops.dot_general(p["left"], h, ((1,), (2,)))  # outputs first
    h = pcp.ops.transpose(h, (1, 2, 0)) @ pcp.ops.transpose(p["turned"], (1, 0))
    scores = pcp.ops.dot_general(h, p["table"], ((2,), (1,)))
    return (scores * scores).mean() + (pcp.ops.take(p["table"], tokens, 0) * h).sum() + p["bias"].sum()


PARAMETERS = {
    "layers": {"in_out": drawn(4, 5), "out_in": drawn(6, 5)}, "left": drawn(7, 6), "turned": drawn(3, 7),
    "table": drawn(8, 3), "bias": drawn(3),
}  # fmt: skip
NAMES = {"layers.in_out": 0, "layers.out_in": 1, "left": 1, "turned": 1, "table": 1}
TOKENS, X = RNG.integers(0, 8, (2, 5)).astype(np.int32), drawn(2, 5, 4)
PROGRAM = pcp.trace(loss, PARAMETERS, pcp.spec((2, 5), "i32"), pcp.spec((2, 5, 4), "f32"))


def test_the_loss_and_gradients_are_those_of_merged_matrices() -> None:
    adapted = pcp.lora(PROGRAM, rank=2, alpha=3, targets=[*NAMES], weights=PARAMETERS)
    assert {module: axis for module, (_, axis) in adapted.matrices.items()} == NAMES
    assert not any(adapted.weights[f"{module}.lora_B.weight"].any() for module in NAMES)
    weights = map_tree(lambda a: drawn(*a.shape), adapted.weights)
    value, found = run(pcp.value_and_grad(adapted.program), weights, adapted.buffers, TOKENS, X)

    whole = adapted.merged(weights)
    layers = {name: whole.pop(f"layers.{name}") for name in ("in_out", "out_in")}
    expected, gradients = run(pcp.value_and_grad(PROGRAM), {**whole, "layers": layers}, TOKENS, X)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    for module, axis in NAMES.items():
        outer = gradients["layers"][module[7:]] if "." in module else gradients[module]
        by_matrix = outer * (3 / 2) if axis else outer.T * (3 / 2)
        up, down = (weights[f"{module}.lora_{part}.weight"] for part in "BA")
        for part, wanted in (("A", up.T @ by_matrix), ("B", by_matrix @ down.T)):
            np.testing.assert_allclose(found[f"{module}.lora_{part}.weight"], wanted, rtol=2e-3, atol=1e-3)


def test_without_targets_the_head_and_tables_stay() -> None:
    def two(p: Any, x: pcp.Tensor) -> pcp.Tensor:
        return (x @ p["a.proj.weight"] @ p["lm_head.weight"]).sum()

    weights = {"a.proj.weight": drawn(4, 4), "lm_head.weight": drawn(4, 6)}
    program = pcp.trace(two, weights, pcp.spec((2, 4), "f32"))
    assert [*pcp.lora(program, rank=2, weights=weights).matrices] == ["a.proj"]
    assert [*pcp.lora(program, rank=2, weights=weights, targets=["lm_head"]).matrices] == ["lm_head"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_what_stays_is_bound_and_no_part_of_the_state(accumulate: int) -> None:
    """The step with `bound` is that whose state carries the buffers."""
    adapted = pcp.lora(PROGRAM, rank=2, targets=["left", "turned"], weights=PARAMETERS)
    optimizer = pcp.optimizers.adamw(1e-2)
    steps = [
        pcp.training_step(adapted.program, optimizer, accumulate=accumulate, bound=bound)
        for bound in (True, False)
    ]
    states = [
        steps[0].initial_state(adapted.weights),
        steps[1].initial_state(adapted.weights, adapted.buffers),
    ]
    assert sorted(states[0]) == ["optimizer", "params", "step"]
    assert states[0]["optimizer"]["first"].keys() == adapted.weights.keys()
    plans = [pcp.plan(steps[0]).bind(adapted.buffers), pcp.plan(steps[1])]
    batch = tuple(np.concatenate([each] * accumulate) for each in (TOKENS, X))
    for _ in range(3):
        pairs = [plan.run(state, batch) for plan, state in zip(plans, states, strict=True)]
        states = [state for state, _ in pairs]
    assert float(pairs[0][1]["loss"]) == float(pairs[1][1]["loss"])
    for name, array in states[0]["params"].items():
        np.testing.assert_array_equal(np.asarray(array), np.asarray(states[1]["params"][name]))
    evaluated = run(evaluation_step(adapted.program), adapted.buffers, adapted.weights, (TOKENS, X))
    assert float(evaluated) == pytest.approx(float(run(PROGRAM, PARAMETERS, TOKENS, X)), rel=1e-5)


def test_what_cannot_be_adapted_is_told() -> None:
    with pytest.raises(NotAdaptable, match=r"rank is 0; expected an integer of at least 1"):
        pcp.lora(PROGRAM, rank=0, weights=PARAMETERS)
    with pytest.raises(
        NotAdaptable, match=r"targets name bias, .* program are in_out, left, out_in, table, turned"
    ):
        pcp.lora(PROGRAM, rank=2, targets=["left", "bias"], weights=PARAMETERS)
    with pytest.raises(NotAdaptable, match=r"a Program does not hold its weights; give them"):
        pcp.lora(PROGRAM, rank=2)


def test_settings_of_lora_are_read_from_a_text() -> None:
    assert LoraSettings.parse("rank=4,alpha=16,targets=q_proj,v_proj") == LoraSettings(
        4, 16.0, ("q_proj", "v_proj")
    )
    assert LoraSettings.parse("targets=c_attn, rank=2") == LoraSettings(2, None, ("c_attn",))
    assert LoraSettings.parse("alpha=1") == LoraSettings(8, 1.0, ())
    for wrong in ("rank=0", "rank=x", "alpha=nan", "rank=1,rank=2", "q_proj", "dropout=0.1", "rank=2,4"):
        with pytest.raises(
            InvalidTrainingConfig, match=r"expected a rank of at least 1 .* rank=8,alpha=16,targets=q_proj"
        ):
            LoraSettings.parse(wrong)
