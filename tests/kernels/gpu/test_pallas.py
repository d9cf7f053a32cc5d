"""A kernel of Pallas at a site: chosen in a Path, measured and verified in the child, saved, loaded and run.

Without a GPU it is interpreted. PCP_TEST_PLATFORM=cuda lowers it by Triton.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas
from jax.experimental.pallas import triton

import pcp
from pcp.ir import DType, Program, TensorSpec, bindings
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Kernel, apply_kernels, register_kernel, replaced, sites_of
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.jax_lowering import lowered_text
from pcp.kernels.named import Named, applies_to_f32, tensors
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from tests.conftest import PLATFORM
from tests.kernels.gpu import lowers_for_gpus

NAME = "softmax.pallas"
pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


def _row(x_ref: jax.Array, result_ref: jax.Array) -> None:
    x = x_ref[0, :]
    e = jnp.exp(x - jnp.max(x))
    result_ref[0, :] = e / jnp.sum(e)


def _on(platform: str) -> Lowered:
    def softmax(x: jax.Array) -> jax.Array:
        row = pallas.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
        return pallas.pallas_call(
            _row,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0],),
            in_specs=[row],
            out_specs=row,
            interpret=platform == "cpu",
            compiler_params=triton.CompilerParams(num_warps=4) if platform == "cuda" else None,
        )(x)

    return Lowered(lambda op: Application(softmax, tensors(op)), platform)


def _applies(op: ir.Operation) -> bool:
    named = Named.of(op)
    return named.name == "softmax" and applies_to_f32(op) and named.attributes["axis"] == 1


def _kernel(platform: str) -> Kernel:
    requires = ("sm_80",) if platform == "cuda" else ()
    return Kernel(NAME, "a row in registers", _applies, _on(platform), requires)


def _program() -> Program:
    return prepared(pcp.trace(lambda x, y: pcp.softmax(x, 1) * y, *[pcp.spec((24, 128), "f32")] * 2))


@pytest.fixture
def registered() -> Iterator[Kernel]:
    kernel = register_kernel(_kernel(PLATFORM))
    yield kernel
    del FAMILIES["softmax"].kernels[NAME]


def test_a_path_with_it_is_measured_saved_and_followed(registered: Kernel, tmp_path: FilePath) -> None:
    program = _program()
    (site,) = sites_of(program, PLATFORM)
    assert NAME in site.kernels
    with Bench() as bench:
        row = bench.measure(
            Request(
                site.region,
                replaced(site.region, registered),
                NAME,
                exact=widened(site.region),
                timing_seconds=0.05,
                site=registered.claims,
            )
        )
    assert row.failure is None, row.detail
    assert row.seconds
    assert row.error is not None
    assert row.error < 1e-5
    Path.of(program, {site.key: registered}).save(tmp_path / "path.json")
    followed = pcp.plan(program, path=Path.load(tmp_path / "path.json"))
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=(24, 128)).astype(np.float32) for _ in range(2))
    exact = jax.nn.softmax(x.astype(np.float64), 1) * y
    assert np.linalg.norm(np.asarray(followed.run(x, y)) - exact) < 1e-5 * np.linalg.norm(exact)


@lowers_for_gpus
def test_what_triton_compiles_is_part_of_a_program_that_is_kept(tmp_path: FilePath) -> None:
    """It is bytecode in a string, which is no UTF-8. No GPU is needed to make it."""
    program = _program()
    (site,) = sites_of(program, PLATFORM)
    changed = apply_kernels(program, {site.key: _kernel("cuda")})
    assert "xla.gpu.triton" in changed.text
    changed.save(tmp_path / "changed.pcp")
    for again in (
        Program.parse(changed.text),
        pcp.load(tmp_path / "changed.pcp"),
        Program.from_artifact(changed.artifact()),
    ):
        assert again.digest == changed.digest


def test_bytes_elsewhere_are_no_text() -> None:
    text = '{mhlo.backend_config = {ir = "\\FE{"}, pcp.name = "\\FE"}'
    with pytest.raises(bindings.InvalidProgram, match=r"b'\\xfe' in it is not UTF-8 text"):
        bindings.check_strings(text)
    bindings.check_strings(text.replace('name = "\\FE"', 'name = "}"'))


def test_a_kernel_is_the_same_program_wherever_its_lines_stand() -> None:
    written = textwrap.dedent(
        """
        import jax
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        def body(x, out):
            out[...] = jax.numpy.tanh(x[...])

        def kernel(x):
            result = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return pallas.pallas_call(body, out_shape=result, compiler_params=triton.CompilerParams(num_warps=2))(x)
        """
    )
    texts = set()
    for lines in (0, 3):
        names: dict[str, Any] = {}
        exec(compile("\n" * lines + written, f"kernel_{lines}.py", "exec"), names)
        texts.add(lowered_text(names["kernel"], [TensorSpec((64,), DType.f32)], "cuda"))
    assert len(texts) == 1
