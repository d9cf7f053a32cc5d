"""The XLA backend: transfers, errors, devices."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp import backends
from pcp.backends import CompilationFailed, Device, ExecutionFailed, OutOfMemory, Target, UnknownDevice, xla
from pcp.backends.xla import XLABackend, XLAExecutable, _remember_tuning, xla_client
from pcp.interruption import all_of
from pcp.ir import DType, TensorSpec

BACKEND = backends.backend()
CPU = backends.device("cpu:0")


def aligned(count: int, writeable: bool) -> np.ndarray[Any, Any]:
    """Float32 memory at an address that XLA could use as it is."""
    raw = bytearray(4 * count + 64) if writeable else bytes(np.random.default_rng(0).bytes(4 * count + 64))
    array = np.frombuffer(raw, np.float32, count=count + 15)
    offset = -(array.ctypes.data // 4) % 16
    return array[offset : offset + count]


def test_the_processor_is_a_device_with_its_memory() -> None:
    assert (CPU.kind, CPU.index, str(CPU)) == ("cpu", 0, "cpu:0")
    assert 2**28 < CPU.capacity < 2**50
    assert backends.device("cpu") == CPU
    assert backends.device(CPU) is CPU
    assert CPU in backends.devices()


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    for name in ("cpu:99", "abacus:0", "", ":", "cpu:x"):
        with pytest.raises(
            UnknownDevice, match=f"'{name}' is not a device of this machine; choose one of: .*cpu:0"
        ):
            backends.device(name)


@pytest.mark.parametrize("alias", [True, False])
@pytest.mark.parametrize("writeable", [True, False])
def test_memory_is_shared_only_if_nobody_can_write_to_it(alias: bool, writeable: bool) -> None:
    array = aligned(256, writeable)
    placed = Target.of(CPU).place(array, TensorSpec((256,), DType.f32), alias=alias)
    shares = placed.unsafe_buffer_pointer() == array.ctypes.data
    assert shares == (alias and not writeable)
    np.testing.assert_array_equal(placed, array)


def test_a_read_only_view_of_writable_memory_is_copied() -> None:
    owner = aligned(256, writeable=True)
    view = owner[:]
    view.flags.writeable = False
    placed = Target.of(CPU).place(view, TensorSpec((256,), DType.f32), alias=True)
    before = np.array(placed)
    owner[:] = 7
    np.testing.assert_array_equal(placed, before)


@pytest.mark.parametrize("dtype", [DType.f64, DType.i64, DType.u64, DType.c128, DType.bf16])
def test_wide_types_keep_their_bits(dtype: DType) -> None:
    array = np.frombuffer(np.random.default_rng(1).bytes(8 * dtype.itemsize), dtype.numpy)
    placed = Target.of(CPU).place(array, TensorSpec((8,), dtype))
    assert placed.dtype == dtype.numpy
    assert np.asarray(placed).tobytes() == array.tobytes()


def test_what_counts_as_a_buffer() -> None:
    assert BACKEND.is_buffer(jnp.ones(2))
    assert not BACKEND.is_buffer(np.ones(2))
    found = []
    jax.jit(lambda x: found.append(BACKEND.is_buffer(x)))(1.0)
    assert found == [False]


def test_a_program_that_xla_refuses_is_explained() -> None:
    program = pcp.Program.parse(
        "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {"
        " %0 = stablehlo.custom_call @no_such_kernel(%a) : (tensor<2xf32>) -> tensor<2xf32> return %0 : tensor<2xf32> }"
    )
    with pytest.raises(CompilationFailed, match=r"XLA refuses the program on [a-z]+:0: .*no_such_kernel"):
        pcp.plan(program, cache=False)


def test_an_option_that_xla_does_not_know_is_explained() -> None:
    program = pcp.trace(lambda x: x + 1, pcp.spec((2,), "f32"))
    with pytest.raises(CompilationFailed, match="No such compile option: 'xla_nonsense'"):
        pcp.plan(program, cache=False, options={"xla_nonsense": 1})


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (
            "RESOURCE_EXHAUSTED: out of memory",
            OutOfMemory,
            "the device ran out of memory while the program ran",
        ),
        ("INTERNAL: on fire", ExecutionFailed, "the device refused to run the program: INTERNAL: on fire"),
    ],
)
def test_what_goes_wrong_on_the_device_gets_a_name(message: str, error: type[Exception], text: str) -> None:
    executable = pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec((2,), "f32")))._executable
    assert isinstance(executable, XLAExecutable)

    def fail(_: Any) -> None:
        raise jax.errors.JaxRuntimeError(message)

    executable._execute = fail
    with pytest.raises(error, match=text):
        executable.run([jnp.ones(2)])


def test_bfloat16_computes_in_its_own_precision() -> None:
    x = np.array([1.0, 256.0], ml_dtypes.bfloat16)
    result = pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec((2,), "bf16"))).run(x)
    np.testing.assert_array_equal(np.asarray(result, np.float32), [2.0, 256.0])


def test_devices_are_values() -> None:
    assert Device("cpu", 0, 5) == Device("cpu", 0, 5)
    assert isinstance(XLABackend().devices()[0], Device)


TWO_DEVICES = """
import logging
import jax.numpy as jnp, numpy as np, jax
import pcp
logging.basicConfig(level=logging.INFO)
logging.getLogger("jax").setLevel(logging.WARNING)
assert [str(d) for d in pcp.backends.devices()] == ["cpu:0", "cpu:1"]
program = pcp.trace(lambda s, x: (s + x, x * 2), pcp.spec((3,), "f32", "state"), pcp.spec((3,), "f32"))
plan = pcp.plan(program, device="cpu:1", cache=False)
first, second = jax.devices("cpu")
x = np.arange(3, dtype=np.float32)
state = np.zeros(3, np.float32)
for _ in range(3):
    state, doubled = plan.run(state, x)
    assert state.devices() == {second}
elsewhere = jax.device_put(x, first)
for _ in range(2):
    state, doubled = plan.run(state, elsewhere)
    assert doubled.devices() == {second} and doubled.tolist() == [0, 2, 4]
assert state.tolist() == [0, 5, 10]
assert not elsewhere.is_deleted()
try:
    plan.run(state, jax.device_put(x.astype(np.int32), second))
except pcp.planning.arguments.ArgumentDTypeMismatch:
    print("refused")
"""


def test_a_plan_runs_on_its_device_and_brings_arrays_there() -> None:
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused\n"
    assert "argument x is copied to cpu:1" in done.stderr


def test_what_xla_measures_of_products_on_gpus_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    options = xla_client.CompileOptions()
    _remember_tuning(options)
    kept = options.executable_build_options.debug_options.xla_gpu_per_fusion_autotune_cache_dir
    assert Path(kept).is_dir()
    assert Path(kept).is_relative_to(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path / "file"))
    other = xla_client.CompileOptions()
    _remember_tuning(other)  # a folder that cannot be made costs time only
    assert not other.executable_build_options.debug_options.xla_gpu_per_fusion_autotune_cache_dir


@pytest.mark.parametrize("most", [1, 2])
def test_only_so_many_threads_compile_at_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla, "_COMPILERS", threading.BoundedSemaphore(most))
    lock, at_work, counts = threading.Lock(), 0, list[int]()

    def compile_and_load(*_: object) -> None:
        nonlocal at_work
        with lock:
            at_work += 1
            counts.append(at_work)
        time.sleep(0.05)
        with lock:
            at_work -= 1

    native = SimpleNamespace(platform="cpu", client=SimpleNamespace(compile_and_load=compile_and_load))
    monkeypatch.setattr(xla.xla_client, "DeviceList", lambda _: None)
    program = pcp.trace(lambda x: x + 1, pcp.spec((2,), "f32"))
    all_of([lambda: xla._compile(program, (native,), None)] * 6, 3)
    assert len(counts) == 6
    assert max(counts) == most


def test_a_client_leaves_memory_to_the_process_that_measures() -> None:
    said = "import os, pcp; pcp.backends.devices(); print(os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'])"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("XLA_PYTHON")}
    assert (
        subprocess.run(
            [sys.executable, "-c", said], env=variables, capture_output=True, text=True, check=True
        ).stdout
        == "false\n"
    )
