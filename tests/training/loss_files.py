"""Losses in files, with weights and data beside them: of a network that PCP traced, and as text from elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pcp
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.recipes.prepare import configured, prepare
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder

BATCH, FEATURES, HIDDEN = 8, 3, 16
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Files:
    """The files of a loss."""

    model: Path
    weights: Path
    data: Path

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of a short run on them."""
        given = {"model": str(self.model), "weights": str(self.weights), "data": str(self.data)}
        small = {"steps": 40, "warmup_steps": 2, "learning_rate": 0.01, "evaluate_every": 20, "seed": 3}
        return given | small | more

    def prepared(self, folder: Path, **more: Any) -> tuple[Recipe, RunFolder]:
        """A run that is about to begin; where it cannot, its folder is free for another."""
        run = RunFolder.create(folder, configured(self.settings(**more)))
        try:
            return prepare(run), run
        except PCPError:
            run.discard()
            raise


def save_arrays(path: Path, arrays: Arrays) -> Path:
    with path.open("wb") as file:
        write_arrays(file, arrays)
    return path


def samples(count: int = 200) -> Arrays:
    """Points, and a function of them that a small network learns."""
    x = np.random.default_rng(1).normal(size=(count, FEATURES)).astype(np.float32)
    return {"x": x, "y": np.sin(x.sum(1)).astype(np.float32)}


def parameters() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {
        "hidden": {"w": rng.normal(0, 0.5, (FEATURES, HIDDEN)).astype(np.float32)},
        "out": rng.normal(0, 0.5, HIDDEN).astype(np.float32),
    }


def network_loss() -> Program:
    """The mean square error of a small network, `(params, x, y) -> scalar`."""

    def loss(params: Any, x: pcp.Tensor, y: pcp.Tensor) -> pcp.Tensor:
        return pcp.mean((pcp.tanh(x @ params["hidden"]["w"]) @ params["out"] - y) ** 2)

    return pcp.trace(loss, parameters(), pcp.spec((BATCH, FEATURES), "f32"), pcp.spec((BATCH,), "f32"))


def traced(folder: Path) -> Files:
    """A loss that PCP traced, with names and roles."""
    network_loss().save(folder / "network.pcp")
    nested = parameters()
    weights = {"hidden.w": nested["hidden"]["w"], "out": nested["out"]}
    np.savez(folder / "samples.npz", **samples())  # type: ignore[arg-type]  # the stubs take the names for flags
    return Files(
        folder / "network.pcp", save_arrays(folder / "w.safetensors", weights), folder / "samples.npz"
    )


def plain(folder: Path) -> Files:
    """The same loss as the text that JAX lowers to, its weights in the middle of its arguments."""

    def loss(x: jax.Array, w: jax.Array, out: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ w) @ out - y) ** 2)

    shapes = ((BATCH, FEATURES), (FEATURES, HIDDEN), (HIDDEN,), (BATCH,))
    lowered = jax.jit(loss).lower(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    (folder / "plain.mlir").write_text(lowered.as_text())
    nested, data = parameters(), samples()
    weights = save_arrays(folder / "p.safetensors", {"arg1": nested["hidden"]["w"], "arg2": nested["out"]})
    return Files(
        folder / "plain.mlir",
        weights,
        save_arrays(folder / "samples.safetensors", {"arg0": data["x"], "arg3": data["y"]}),
    )
