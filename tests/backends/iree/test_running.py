"""Programs on the devices of IREE's runtime, against NumPy and XLA."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp import backends
from pcp.backends import CompilationFailed
from pcp.backends.iree import running
from pcp.backends.iree.chips import Chip
from pcp.backends.iree.compiling import compiled_for
from pcp.ir import DType
from pcp.planning.placing.operations import placed

RNG = np.random.default_rng()
PLACES = [
    f"iree:{device.kind}" for device in backends.devices("iree") if device.kind in ("llvm-cpu", "vulkan")
]


@pytest.mark.parametrize("place", PLACES)
def test_a_program_gives_the_numbers_of_numpy(place: str) -> None:
    x, w = RNG.standard_normal((8, 3), np.float32), RNG.standard_normal((3, 5), np.float32)
    plan = pcp.plan(pcp.trace(lambda x, w: pcp.tanh(x @ w), x, w), place)
    result = plan.run(x, w)
    assert plan.backend.is_buffer(result)
    np.testing.assert_allclose(np.asarray(result), np.tanh(x.astype(np.float64) @ w), rtol=1e-5, atol=1e-6)
    assert f"{plan.device}".startswith(place.removeprefix("iree:"))
    assert plan.path.backend == "iree"
    assert pcp.plan(plan.program, place, path=plan.path).backend.name == "iree"


def test_a_path_that_names_iree_needs_no_device() -> None:
    program = pcp.trace(lambda x: x * 2, pcp.spec((3,), "f32"))
    path = pcp.plan(program, "iree:llvm-cpu").path
    plan = pcp.plan(program, path=path)
    assert (plan.backend.name, str(plan.device)) == ("iree", "llvm-cpu:0")


def test_every_element_type_comes_back_as_it_was() -> None:
    arrays = [
        (RNG.standard_normal(5) * 4).astype(DType(name).numpy)
        for name in ("f64", "f32", "f16", "bf16", "i64", "i32", "i8", "bool")
    ] + [np.arange(5, dtype=dtype) for dtype in (np.uint8, np.uint32, np.uint64)]
    plan = pcp.plan(pcp.trace(lambda xs: [pcp.where(x == x, x, x) for x in xs], arrays), "iree:llvm-cpu")
    for given, found in zip(arrays, plan.run(arrays), strict=True):
        assert found.dtype == given.dtype
        np.testing.assert_array_equal(np.asarray(found), given)


def test_products_of_16_bit_floats_are_summed_in_float32() -> None:
    given = [RNG.uniform(0.5, 1, (4, 4096)).astype(DType.bf16.numpy) for _ in range(2)]
    plan = pcp.plan(pcp.trace(lambda a, b: a @ b.T, *given), "iree:llvm-cpu")
    exact = given[0].astype(np.float64) @ given[1].astype(np.float64).T
    np.testing.assert_allclose(np.asarray(plan.run(*given)).astype(np.float64), exact, rtol=2**-8)


def test_what_iree_refuses_or_gets_wrong_is_written_otherwise() -> None:
    x = np.concatenate([RNG.normal(scale=5, size=9), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30]])
    made = np.asarray(pcp.plan(pcp.trace(pcp.tanh, x), "iree:llvm-cpu").run(x))
    np.testing.assert_allclose(made, np.tanh(x), rtol=1e-15)
    assert (np.signbit(made) == np.signbit(np.tanh(x)))[:-2].all()
    numbers = RNG.integers(0, 200, 9).astype(np.uint8)
    turned = pcp.plan(pcp.trace(lambda x: pcp.flip(x, 0), numbers), "iree:llvm-cpu").run(numbers)
    np.testing.assert_array_equal(np.asarray(turned), numbers[::-1])
    truths = RNG.random((2, 9)) < 0.5
    either = pcp.plan(pcp.trace(lambda a, b: a + b, *truths), "iree:llvm-cpu")
    np.testing.assert_array_equal(np.asarray(either.run(*truths)), truths[0] | truths[1])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_a_product_over_nothing_is_zero(dtype: str) -> None:
    a, b = (np.zeros(shape, DType(dtype).numpy) for shape in ((3, 0), (0, 4)))
    plan = pcp.plan(pcp.trace(lambda a, b: a @ b, a, b), "iree:llvm-cpu")
    made = np.asarray(plan.run(a, b))
    np.testing.assert_array_equal(made, np.zeros((3, 4), a.dtype))
    assert made.dtype == a.dtype


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_16_bit_floats_are_refused_on_vulkan_which_gets_them_wrong(name: str) -> None:
    program = pcp.trace(lambda x: pcp.tanh(x.astype(name)).astype("f32"), pcp.spec((3,), "f32"))
    with pytest.raises(
        CompilationFailed,
        match=rf"IREE gives wrong numbers for {name} on Vulkan, .* write it in f32, or run it by XLA",
    ):
        compiled_for(program, Chip.of("vulkan"), {}, cache=False)


def test_state_is_donated() -> None:
    loss = pcp.trace(
        lambda w, x: ((x @ w) ** 2).mean(), np.zeros((3, 1), np.float32), pcp.spec((8, 3), "f32")
    )
    step = pcp.training_step(loss, pcp.optimizers.adamw(1e-2))
    weights, x = RNG.standard_normal((3, 1), np.float32), RNG.standard_normal((8, 3), np.float32)
    plans = [pcp.plan(step, place) for place in ("iree:llvm-cpu", None)]
    losses = []
    for plan in plans:
        state = plan.place(step.initial_state(weights), (x,))[0]
        found = []
        for _ in range(3):
            before = state
            state, metrics = plan.run(state, (x,))
            found.append(float(np.asarray(metrics["loss"])))
        losses.append(found)
        with pytest.raises(pcp.errors.PCPError, match="donated"):
            plan.run(before, (x,))
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_arrays_that_share_memory_are_not_written_to() -> None:
    """IREE gives both results of the first program one memory."""
    kinds = {name: pcp.spec((2, 3), "f32", "state") for name in "mn"}
    fresh = pcp.trace(lambda x: {"m": 0.0 * x, "n": 0.0 * x}, pcp.spec((2, 3), "f32"))
    step = pcp.trace(lambda state: {"m": state["m"] + 1.0, "n": state["n"] + 10.0}, kinds)
    assert [entry.alias for entry in step.arguments] == [0, 1]
    state = pcp.plan(fresh, "iree:llvm-cpu").run(np.zeros((2, 3), np.float32))
    found = pcp.plan(step, "iree:llvm-cpu").run(state)
    assert np.array_equal(found["m"], np.full((2, 3), 1.0))
    assert np.array_equal(found["n"], np.full((2, 3), 10.0))


@pytest.mark.parametrize("place", PLACES)
def test_a_call_computes_with_its_own_arrays(place: str) -> None:
    """What a program puts into a state is what another takes out of it, call after call."""
    kind = pcp.spec((40, 25), "f32")
    state = {"parts": [kind] * 8, "kept": [kind] * 8}

    def put(state: Any, x: pcp.Tensor) -> Any:
        return state | {"parts": [x[1000 * i : 1000 * (i + 1)].reshape((40, 25)) for i in range(8)]}

    def take(state: Any) -> pcp.Tensor:
        return pcp.concatenate([part.reshape((1000,)) for part in state["parts"]])

    puts = pcp.plan(pcp.trace(put, state, pcp.spec((8000,), "f32")), place)
    takes = pcp.plan(pcp.trace(take, state), place)
    held = {name: [np.zeros((40, 25), np.float32)] * 8 for name in state}
    for _ in range(5):
        x = RNG.standard_normal(8000, np.float32)
        held = puts.run(held, x)
        assert np.array_equal(takes.run(held), x)


def test_native_kernels_and_refused_options_are_explained() -> None:
    program = pcp.Program.parse(
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %y = stablehlo.custom_call @some_kernel(%x) : (tensor<2xf32>) -> tensor<2xf32>\n  return %y : tensor<2xf32>\n}"
    )
    with pytest.raises(
        CompilationFailed,
        match=r'no stablehlo.custom_call, and the program calls "some_kernel" \(target iree:llvm-cpu:host',
    ):
        pcp.plan(program, "iree:llvm-cpu")
    plain = pcp.trace(lambda x: x + 1, pcp.spec((2,), "f32"))
    with pytest.raises(CompilationFailed, match=r"IREE refuses .*target iree:llvm-cpu:host.*no-such-option"):
        pcp.plan(plain, "iree:llvm-cpu", options={"no-such-option": True})
    factor = pcp.trace(lambda a: pcp.cholesky(a), pcp.spec((3, 3), "f32"))
    with pytest.raises(
        CompilationFailed, match=r"IREE refuses stablehlo\.cholesky for target .* run the program by XLA"
    ):
        pcp.plan(factor, "iree:llvm-cpu")
    wide = pcp.trace(pcp.sin, pcp.spec((3,), "f64"))
    with pytest.raises(
        CompilationFailed, match=r"IREE refuses sin for target iree:llvm-cpu:host: undefined symbol"
    ):
        pcp.plan(wide, "iree:llvm-cpu")


def test_a_driver_whose_library_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    get_driver = running.rt.get_driver

    def missing(name: str) -> Any:
        if name == "vulkan":
            raise ValueError("NOT_FOUND; Vulkan loader library not found")
        return get_driver(name)

    monkeypatch.setattr(running.rt, "get_driver", missing)
    assert {device.kind for device in running._native.__wrapped__()} >= {"llvm-cpu"}


def test_operations_run_by_xla_the_arena_and_iree_in_one_program() -> None:
    x = RNG.standard_normal((4, 4), np.float32)
    program = pcp.trace(lambda x: pcp.tanh(pcp.sin(x @ x) @ x), x)
    path = placed(program, {"dot_general": "iree:llvm-cpu", "sine": "arena:cpu"})
    plan = pcp.plan(program, path=path)
    assert "4: 2 on llvm-cpu:0 by iree, 1 on cpu:0 by arena, 1 on cpu:0 by xla" in str(plan)
    np.testing.assert_allclose(plan.run(x), pcp.plan(program).run(x), rtol=1e-5, atol=1e-6)
    assert {str(device) for device in plan._executable.memories} == {"cpu:0", "llvm-cpu:0"}  # type: ignore[attr-defined]  # regions


@pytest.mark.parametrize("place", PLACES)
def test_a_process_ends_well_that_still_has_arrays(place: str) -> None:
    """IREE's bindings let go of a device before its arrays, whose memory it frees."""
    code = f"""
import numpy, pcp
y = pcp.plan(pcp.trace(lambda x: x * 2, pcp.spec((3,), "f32")), {place!r}).run(numpy.ones(3, numpy.float32))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("place", PLACES[-1:])  # Vulkan, where there is one
def test_a_program_that_is_larger_than_a_device_runs_there_piece_by_piece(place: str) -> None:
    def function(weights: list[pcp.Tensor], x: pcp.Tensor) -> pcp.Tensor:
        for each in weights:
            x = pcp.tanh(x @ each)
        return x

    x, *weights = (RNG.standard_normal((16, 16), np.float32) / 4 for _ in range(9))
    program = pcp.trace(function, weights, x)
    plan = pcp.plan(program, "cpu:0", path=pcp.streamed(program, place, 5 * x.nbytes))
    assert f"on {place.removeprefix('iree:')}:0 by iree" in str(plan)
    np.testing.assert_allclose(plan.run(weights, x), pcp.plan(program).run(weights, x), rtol=1e-4, atol=1e-6)
