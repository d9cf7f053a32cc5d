"""AdamW over all parameters in one call: against float64, in place, and refused where arrays do not fit."""

from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import kernels
from pcp.backends import ExecutionFailed
from pcp.ir import Role
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels.features import masked
from pcp.kernels.groups import operands_of
from pcp.kernels.native import LIBRARIES, built
from pcp.kernels.regions import only_operation
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.index_ranges import site_ranges
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from tests.kernels.native.programs import arguments_of, calling

SHAPES = {"a": (33, 65), "b": (65,), "c": (65, 1), "d": ()}


def step_of(clip_norm: float | None = None, decay: float = 0.1) -> pcp.Program:
    """Of a network of two layers."""

    def loss(w: Any, x: Any) -> Any:
        return ((pcp.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"]) ** 2).mean()

    weights = {name: pcp.spec(shape, "f32") for name, shape in SHAPES.items()}
    adamw = pcp.optimizers.adamw(pcp.optimizers.WarmupCosine(1e-2, 2, 9), weight_decay=decay)
    return pcp.training_step(loss, adamw, weights, pcp.spec((20, 33), "f32"), clip_norm=clip_norm)


def native_path(step: pcp.Program) -> Path:
    """The path whose update is native."""
    (site,) = (site for site in kernels.sites_of(prepared(step), "cpu") if site.family == "adamw")
    return Path.of(step, {site.key: kernels.kernel_named("adamw.native")})


def state_of(step: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    return step.initial_state(
        {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    )


def trained(plan: Any, state: Any, dtype: Any) -> list[np.ndarray]:
    """Parameters and moments after three steps."""
    random = np.random.default_rng(5)
    state = jax.tree.map(lambda x: x.astype(dtype) if x.dtype.kind == "f" else x, state)
    for _ in range(3):
        state, _ = plan.run(state, (random.normal(size=(20, 33)).astype(dtype),))
    return [np.asarray(each, np.float64) for each in jax.tree.leaves(state)]


def test_what_is_measured_and_verified_draws_coefficients_that_a_run_may_have() -> None:
    (site,) = (site for site in kernels.sites_of(prepared(step_of(1.0)), "cpu") if site.family == "adamw")
    module = site.region.module()
    names = {place: name for name, place in operands_of(only_operation(entry_block(module)))}
    ranges = {name: (low, high) for name, low, high in site_ranges(site.region)}
    drawn: dict[str, list[float]] = {}
    for index in range(3):
        arrays = random_arguments(site.region.arguments, Recipe(ranges=site_ranges(site.region)), index)
        for place, array in enumerate(arrays):
            drawn.setdefault(names[place], []).extend(array.reshape(-1).tolist())
    assert all(0 < x <= 1 for name in ("correction1", "correction2", "scale") for x in drawn[name])
    assert all(0 <= x <= 1 for x in drawn["second"])
    assert min(drawn["first"]) < 0 < max(drawn["gradient"])
    assert set(ranges) == {
        site.region.arguments[p].name for p, n in names.items() if n not in ("parameter", "gradient")
    }


@pytest.mark.share(2, each="decay")
@pytest.mark.parametrize("decay", [0.1, 0.0])
@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_all_arrays_are_updated_in_one_call_as_in_float64(clip_norm: float | None, decay: float) -> None:
    step = step_of(clip_norm, decay)
    plan = pcp.plan(step, path=native_path(step))
    assert str(plan.lowered.module()).count("pcp.adamw@") == 1
    state = state_of(step, 1)
    exact = trained(pcp.plan(widened(step), "arena:cpu"), state, np.float64)
    found, plain = (trained(each, state, np.float32) for each in (plan, pcp.plan(step)))

    def error(results: list[np.ndarray]) -> float:
        pairs = zip(results, exact, strict=True)
        return max(float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)) for a, b in pairs)

    assert error(found) < max(1e-6, 2 * error(plain))


def test_it_takes_the_memory_of_the_state() -> None:
    step = step_of()
    plan = pcp.plan(step, path=native_path(step))
    assert str(plan.lowered.module()).count("#stablehlo.output_operand_alias<") == 3 * len(SHAPES)
    (used,), (plain,) = plan.memory.values(), pcp.plan(step).memory.values()
    one = sum(4 * int(np.prod(shape)) for shape in SHAPES.values())
    assert used.aliased == plain.aliased
    assert used.temporaries < plain.temporaries + one


def test_its_site_has_the_state_of_the_step() -> None:
    step = prepared(step_of())
    (site,) = (site for site in kernels.sites_of(step, "cpu") if site.family == "adamw")
    state = {entry.name: entry.alias for entry in site.region.arguments if entry.role is Role.state}
    assert len(state) == 3 * len(SHAPES)
    assert sorted(state.values()) == list(range(3 * len(SHAPES)))
    inputs = [entry.spec.shape for entry in site.region.arguments if entry.role is not Role.state]
    assert len([shape for shape in inputs if not shape]) <= 4, "numbers that are known are no inputs"


def test_rates_of_their_own_have_vectors_of_their_own() -> None:
    """Two updates with other coefficients are one site, and one call."""

    def update(p: Any, g: Any, m: Any, v: Any, rate: Any, k: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * (g * g)
        return p - rate * ((m / k) / (pcp.sqrt(v / k) + 1e-8)), m, v

    each, one = pcp.spec((5, 7), "f32"), pcp.spec((), "f32")
    program = pcp.trace(
        lambda p, g, m, v, r, s, k: (update(p, g, m, v, r, k), update(g, p, v, m, s, k)),
        each, each, each, each, one, one, one,
    )  # fmt: skip
    path = native_path(program)
    text = str(path.applied(program).module())
    assert "coefficients = array<i64: 0, 1>" in text
    arguments = [np.abs(array) for array in arguments_of(program)]
    found, plain = (pcp.plan(program, path=each).run(*arguments) for each in (path, None))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("takes", "makes", "own", "words"),
    [
        ([(6,)] * 4, [(6,)] * 2, [0], "4 arrays come in and 2 go out for 1 parameters; expected 4 and 3 for each"),
        ([(6,)] * 4 + [(9,)], [(6,)] * 3, [0], "coefficients are not float32 of shape [10]"),
        ([(6,), (6,), (5,), (6,), (10,)], [(6,)] * 3, [0], "the arrays of parameter 0 have unlike shapes"),
        ([(6,)] * 4 + [(10,)], [(6,), (6,), (2, 3)], [0], "the results of parameter 0 have unlike shapes"),
        ([(6,)] * 4 + [(10,)], [(6,)] * 3, [1], "the coefficients of parameter 0 are number 1; there are 1"),
        ([(6,)] * 4 + [(10,)], [(6,)] * 3, [-1], "the coefficients of parameter 0 are number -1; there are 1"),
    ],
)  # fmt: skip
def test_the_handler_refuses_what_it_is_not_for(
    takes: list[tuple[int, ...]], makes: list[tuple[int, ...]], own: list[int], words: str
) -> None:
    program = calling("adamw", takes, makes, coefficients=own)
    with pytest.raises(ExecutionFailed) as raised:
        pcp.plan(program).run(*arguments_of(program))
    assert words in str(raised.value)


def test_a_processor_with_less_gets_the_same_numbers() -> None:
    step = step_of(0.01)
    state = state_of(step, 2)
    usual = trained(pcp.plan(step, path=native_path(step)), state, np.float32)
    with masked("avx512f", "avx2"):
        assert built(LIBRARIES["optimizers"]).needs == ()
        plain = trained(pcp.plan(step, path=native_path(step)), state, np.float32)
    for a, b in zip(plain, usual, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)
