"""Parameter groups beside optimizers of the parts alone, and in a training step."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run
from tests.optimizers.test_optimizers import SCHEDULE, STEPS, assert_near, random_trees, updated

import pcp
from pcp.ir.tree import flatten
from pcp.optimizers import InvalidOptimizer, NoSuchParameter, adamw, groups, lion, muon, sgd

NAMES = {"weight": "weight", "bias": "bias", "inner.0": "inner"}


def everything(_name: str, _shape: tuple[int, ...]) -> bool:
    return True


def test_every_group_takes_the_steps_of_its_optimizer_alone() -> None:
    (parameters,), gradients = random_trees(1), random_trees(2, STEPS)

    def deep(_name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 3

    base = adamw(SCHEDULE, weight_decay=0.3)
    whole = groups({"b*": {"rate": 0.1, "decay": 0.2}, deep: lion(0.01)}, base)
    found, state, reported = updated(whole, parameters, gradients, "f64")
    alone = {
        "weight": base,
        "bias": adamw(lambda step: SCHEDULE(step) * 0.1, weight_decay=0.2, decays=everything),
        "inner": lion(0.01),
    }
    for name, optimizer in alone.items():
        part = {name: parameters[name]}
        expected, own, rates = updated(optimizer, part, [{name: g[name]} for g in gradients], "f64")
        assert_near({name: found[name]}, expected, "f64")
        group = {"weight": "others", "bias": "group0", "inner": "deep"}[name]
        for a, b in zip(flatten(state[group])[0], flatten(own)[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        assert rates == (reported if name == "weight" else rates)
    assert set(state) == {"others", "group0", "deep"}


def loss(params: Any, x: Any) -> Any:
    hidden = pcp.tanh(x @ params["embed"]["w"] + params["embed"]["bias"])
    return ((hidden @ params["head"]["w"] + params["head"]["bias"]) ** 2).mean()


def layers() -> dict[str, Any]:
    random = np.random.default_rng()
    return {
        name: {
            "w": random.normal(size=(3, 3)).astype(np.float32),
            "bias": random.normal(size=3).astype(np.float32),
        }
        for name in ("embed", "head")
    }


def test_frozen_parameters_have_no_gradient_moments_or_decay() -> None:
    params, x = layers(), np.random.default_rng().normal(size=(4, 3)).astype(np.float32)
    program = pcp.trace(loss, params, pcp.spec(x.shape, "f32"))
    base = adamw(0.1, weight_decay=0.5)
    whole = pcp.training_step(program, base)
    some = pcp.training_step(program, groups({"embed*": "frozen", "*.bias": {"decay": 0.0}}, base))
    assert whole.text.count("dot_general") > some.text.count("dot_general")
    names = [entry.name for entry in some.arguments if "optimizer" in entry.name]
    assert names == [
        f"state.optimizer.{group}.{moment}"
        for group, name in (("group1", "head.bias"), ("others", "head.w"))
        for moment in ("count", f"first.{name}", f"second.{name}")
    ]
    grouped = {entry.name: entry.group for entry in some.arguments}
    assert grouped["state.optimizer.group1.first.head.bias"] == "optimizer.group1.first"
    assert {e.kept for e in some.arguments if ".first." in e.name} == {0.9}
    old, states = whole.initial_state(params), some.initial_state(params)
    after, metrics = run(some, states, (x,))
    everything_moves, _ = run(whole, old, (x,))
    gradient = run(pcp.grad(program), params, x)["head"]
    norm = np.sqrt(sum((g**2).sum() for g in gradient.values()))
    assert metrics["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    for name in ("w", "bias"):
        np.testing.assert_array_equal(after["params"]["embed"][name], params["embed"][name])
        assert not np.array_equal(everything_moves["params"]["embed"][name], params["embed"][name])
        np.testing.assert_allclose(
            after["params"]["head"][name], everything_moves["params"]["head"][name], rtol=1e-4, atol=1e-5
        )


def test_a_group_may_have_muon_or_be_changed_from_it() -> None:
    params, x = layers(), np.ones((4, 3), np.float32)
    program = pcp.trace(loss, params, pcp.spec(x.shape, "f32"))
    own = muon(adamw(0.1), weight_decay=0.3, orthogonal=everything)
    quick = groups({"*.w": {"rate": 2.0, "decay": 0.1}}, own)
    changed = quick.rows[0][2]
    assert isinstance(changed, pcp.optimizers.Muon)
    assert (changed.weight_decay, changed.rest.weight_decay) == (0.1, 0.1)
    step = pcp.training_step(program, groups({"embed.w": own}, sgd(0.1)))
    state = step.initial_state(params)
    assert set(state["optimizer"]["group0"]["momentum"]) == {"embed.w"}


MESSAGES: dict[str, Any] = {
    r"the group 'heads\.\*' has none of the 4 parameters, or groups before it have all .* as head\.": {
        "heads.*": {"rate": 2}
    },
    r"the group '\*\.bias' has none of the 4 parameters, or groups before it have all": {
        "*": {"rate": 2},
        "*.bias": {"rate": 1},
    },
    r"the group <function everything.*> has none .* expected a pattern of names as embed\.bias, embed\.w": {
        "*": {"rate": 2},
        everything: "frozen",
    },
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_group_of_no_parameter_is_refused(message: str) -> None:
    program = pcp.trace(loss, layers(), pcp.spec((4, 3), "f32"))
    with pytest.raises(NoSuchParameter, match=message):
        pcp.training_step(program, groups(MESSAGES[message], adamw(0.1)))


WRONG: list[tuple[Any, Any, str]] = [
    (
        {"a": "freeze"},
        adamw(0.1),
        r"the group 'a' was given 'freeze'; expected a factor 'rate' or a weight 'd",
    ),
    ({"a": {"rates": 0.1}}, adamw(0.1), r"given \{'rates': 0\.1\}; expected a factor 'rate'"),
    ({"a": {"rate": -1}}, adamw(0.1), r"given \{'rate': -1\}; expected .* of at least 0"),
    ({"a": {}}, adamw(0.1), r"given \{\}; expected a factor"),
    ({"a": 0.1}, adamw(0.1), r"the optimizer is 0\.1; expected one as pcp\.optimizers\.adamw"),
    ({"a": "frozen"}, 0.1, r"the optimizer is 0\.1; expected one as pcp\.optimizers\.adamw"),
    ({"a": {"rate": 1}}, groups({}, adamw(0.1)), r"has no rate to change for a group; expected one of pcp"),
]


@pytest.mark.parametrize(("chosen", "others", "message"), WRONG)
def test_settings_of_groups_that_make_no_sense_are_refused(chosen: Any, others: Any, message: str) -> None:
    with pytest.raises(InvalidOptimizer, match=message):
        groups(chosen, others)
