"""The contestants of a training step: PCP, PyTorch and JAX, each made in a process of its own."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.gpu import gpt2_jax, llama_jax
from benchmarks.gpu.fastest import fastest
from benchmarks.gpu.step_errors import RATE, JudgedStep, StepError
from benchmarks.own_process import Run, is_lack_of_memory
from benchmarks.programs import gpt2_jax as jax_step
from pcp.errors import PCPError
from pcp.ir.tree import map_tree
from pcp.models.config import DecoderConfig

Tree = Any


@dataclass(frozen=True, slots=True)
class Task:
    """What a contestant computes.

    Arguments:
        config, batch: of the model.
        device: `cuda:0`.
        folder: where the step that all are judged by lies; empty if it is not judged at these sizes.
        memory: that PCP's plan may take, as `8GiB`; None if it may take all.
    """

    config: DecoderConfig
    batch: int
    device: str
    folder: str = ""
    memory: str | None = None

    @property
    def step(self) -> JudgedStep:
        """The step with its first parameters, and the tokens that all take."""
        return JudgedStep.of_decoder(self.config, self.batch, self.folder)


@dataclass(frozen=True, slots=True)
class Made:
    """A contestant, ready to run.

    Arguments:
        name: for people.
        ready_seconds: of planning and compiling.
        bytes: of the device's memory.
        error: of one step; None if it was not judged.
        about: what it says of itself; all that it has if it cannot run.
    """

    name: str
    ready_seconds: float = 0.0
    bytes: int = 0
    error: StepError | None = None
    about: str = ""


class Contestant(ABC):
    """A training step with its state on a device."""

    name: str
    about = ""

    @abstractmethod
    def load(self, state: Tree) -> None:
        """Go on from a state as `pcp.training_step` has it."""

    @abstractmethod
    def step(self) -> None:
        """Begin one step."""

    @abstractmethod
    def loss(self) -> float:
        """The loss of the last step, when it has ended."""

    @abstractmethod
    def state(self) -> dict[str, Tree]:
        """Parameters and both moments, on the host: `params`, `first`, `second`."""

    @abstractmethod
    def bytes(self) -> int:
        """Of the device's memory that a step takes."""


class WithPCP(Contestant):
    """PCP within a tolerance on the step that all are judged by, or, if that is 0, with the fastest kernels of all families,
    perhaps only of those that round no further.
    """

    def __init__(self, task: Task, tolerance: float, budget: float, rounding: float = math.inf) -> None:
        step = task.step
        if tolerance:
            example = (step.state(), step.tokens) if task.folder else None
            self.plan = pcp.plan(
                step.program,
                device=task.device,
                tolerance=tolerance,
                budget=budget,
                memory=task.memory,
                example=example,
            )
            error, fit = self.plan.error, self.plan.fit
            self.about = "not measured in time" if error is None else f"the plan's error {error:.2g}"
            self.about += f"; {fit}" if fit else ""
        else:
            self.plan = fastest(step.program, task.device, rounding)
        found = {0.0: "PCP, fastest of float32", math.inf: "PCP, fastest kernels"}
        fastest_of = found.get(rounding, "PCP, fastest of 16 bits")
        self.name = f"PCP within {tolerance:.2g}" if tolerance else fastest_of
        self.tokens = tuple(jax.device_put(each) for each in step.tokens)
        self.now: Any = (step.program.initial_state(step.params), {})

    def load(self, state: Tree) -> None:
        """As of `Contestant`."""
        self.now = (state, {})

    def step(self) -> None:
        """As of `Contestant`."""
        self.now = self.plan.run(self.now[0], self.tokens)

    def loss(self) -> float:
        """As of `Contestant`."""
        jax.block_until_ready(self.now)
        return float(self.now[1]["loss"])

    def state(self) -> dict[str, Tree]:
        """As of `Contestant`."""
        after = map_tree(np.asarray, self.now[0])
        return {"params": after["params"], **{name: after["optimizer"][name] for name in ("first", "second")}}

    def bytes(self) -> int:
        """As of `Contestant`."""
        return next(iter(self.plan.memory.values())).peak


class WithTorch(Contestant):
    """PyTorch with bf16 autocast or without, attention by SDPA, AdamW fused; eager or compiled."""

    def __init__(self, task: Task, compiled: bool, autocast: bool = True) -> None:
        import torch

        from benchmarks.gpu import llama_torch
        from benchmarks.programs import gpt2_torch

        step, kind = task.step, task.device.partition(":")[0]
        loss = gpt2_torch.loss if task.config.family == "gpt2" else llama_torch.loss
        self.name = ("torch.compile" if compiled else "PyTorch") + (
            ", bf16 autocast" if autocast else ", float32"
        )
        self.peak = torch.cuda.max_memory_allocated if kind == "cuda" else lambda: 0
        self.tokens = [torch.from_numpy(each).to(kind) for each in step.tokens]
        self.trainer = gpt2_torch.Trainer(step.params, task.config, RATE, autocast, kind, compiled, loss)
        self.step()  # which makes the moments, and compiles
        self.trainer.load(step.program.initial_state(step.params))

    def load(self, state: Tree) -> None:
        """As of `Contestant`."""
        self.trainer.load(state)

    def step(self) -> None:
        """As of `Contestant`."""
        self.last = self.trainer.step(*self.tokens)

    def loss(self) -> float:
        """As of `Contestant`."""
        return float(self.last.item())

    def state(self) -> dict[str, Tree]:
        """As of `Contestant`."""
        return self.trainer.state()

    def bytes(self) -> int:
        """As of `Contestant`."""
        return int(self.peak())


class WithJAX(Contestant):
    """JAX in bfloat16, with attention by cuDNN on a GPU, and a loss in parts; or GPT-2 in float32, as its users write it."""

    def __init__(self, task: Task, narrow: bool = True) -> None:
        step = task.step
        self.name = "JAX, bf16, cuDNN" if narrow else "JAX, float32"
        loss = gpt2_jax.loss if task.config.family == "gpt2" else llama_jax.loss
        loss = loss if narrow else jax_step.loss
        self.tokens = tuple(jax.device_put(each) for each in step.tokens)
        self.now = jax_step.initial_state(step.params)
        made = jax_step.training_step(task.config, RATE, loss)
        self.compiled = made.lower(self.now, self.tokens).compile()

    def load(self, state: Tree) -> None:
        """As of `Contestant`."""
        optimizer = {name: state["optimizer"][name] for name in ("first", "second", "count")}
        self.now = jax.tree.map(jax.numpy.array, {"params": state["params"], **optimizer})

    def step(self) -> None:
        """As of `Contestant`."""
        self.now, self.last = self.compiled(self.now, self.tokens)

    def loss(self) -> float:
        """As of `Contestant`."""
        jax.block_until_ready(self.now)
        return float(self.last)

    def state(self) -> dict[str, Tree]:
        """As of `Contestant`."""
        return {name: map_tree(np.asarray, self.now[name]) for name in ("params", "first", "second")}

    def bytes(self) -> int:
        """As of `Contestant`."""
        use = self.compiled.memory_analysis()
        peak = use.argument_size_in_bytes + use.output_size_in_bytes - use.alias_size_in_bytes
        return int(peak + use.temp_size_in_bytes)


CONTESTANTS: dict[str, Callable[..., Contestant]] = {
    "torch.compile": lambda task, *_: WithTorch(task, compiled=True),
    "planned": WithPCP,
    "fastest": lambda task, _, budget: WithPCP(task, 0.0, budget),
    "fastest f32": lambda task, _, budget: WithPCP(task, 0.0, budget, 0.0),
    "fastest 16 bits": lambda task, _, budget: WithPCP(task, 0.0, budget, 2.0**-16),
    "jax": lambda task, *_: WithJAX(task),
    "eager": lambda task, *_: WithTorch(task, compiled=False),
    "jax f32": lambda task, *_: WithJAX(task, narrow=False),
    "eager f32": lambda task, *_: WithTorch(task, compiled=False, autocast=False),
    "torch.compile f32": lambda task, *_: WithTorch(task, compiled=True, autocast=False),
}
"""How each is made, of a task, a tolerance and seconds of planning."""


def judged(task: Task) -> tuple[None, Run]:
    """Compute the step that all are judged by, in a process that ends before the others begin."""
    task.step.compute(task.device)
    return None, lambda _: None


def contestant(kind: str, task: Task, tolerance: float, budget: float) -> tuple[Made, Run] | None:
    """A contestant after its first step, and a function that takes a number of steps and gives the last loss; None if memory
    was not enough.
    """
    start = time.perf_counter()
    error = None
    try:
        made = CONTESTANTS[kind](task, tolerance, budget)
        ready = time.perf_counter() - start
        if task.folder:
            made.load(task.step.state())
        made.step()
        loss = made.loss()
        if task.folder:
            error = task.step.error({**made.state(), "loss": loss})
    except Exception as problem:
        if is_lack_of_memory(problem):
            return None
        if isinstance(problem, PCPError):  # a plan that cannot be had is a result
            return Made(f"PCP ({kind})", about=f"{type(problem).__name__}: {problem}"), lambda _: 0.0
        if isinstance(problem, ModuleNotFoundError):
            return Made(kind, about=f"{problem.name} is not installed"), lambda _: 0.0
        raise

    def run(steps: int) -> float:
        for _ in range(steps):
            made.step()
        return made.loss()

    return Made(made.name, ready, made.bytes(), error, made.about), run
