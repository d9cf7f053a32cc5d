"""Who trains a model: PCP, planned or as it is written, and PyTorch, eager or compiled; each in a process of its own."""

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.models.zoo import MODELS, made
from benchmarks.own_process import Run, is_lack_of_memory
from pcp.backends import Target
from pcp.errors import PCPError
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.distances import Scale
from pcp.planning.judging.tolerance import least_tolerance
from pcp.planning.paths.kinds import words_of

RATE, BETAS, DECAY = 1e-4, (0.9, 0.99), 0.1
NOTHING = 1e-6
"""Of the size of all gradients: what is smaller is zero in exact arithmetic."""
BF16 = 2.0**-8
"""How much numbers of bfloat16 are rounded, at most."""
PARTS = 8
"""In so many parts of the batch the right gradient is computed, as far as it has so many samples."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained.

    Arguments:
        model: its name among `MODELS`.
        layers: how deep; None for as deep as it is.
        samples, tokens: of a batch.
        device: as `cuda:0`.
        folder: where the right gradient lies.
        memory: that PCP's plan may take, as `8GiB`; None for all that there is.
    """

    model: str
    layers: int | None
    samples: int
    tokens: int
    device: str
    folder: str
    memory: str | None = None

    def batch(self) -> tuple[np.ndarray[Any, Any], ...]:
        """What every step computes on."""
        return MODELS[self.model].batch_of(self.samples, self.tokens)


@dataclass(frozen=True, slots=True)
class Made:
    """A contestant, ready to run.

    Arguments:
        name: for people.
        ready_seconds: of importing, planning and compiling, to the end of the first step; making the module, which all do, is
            left out.
        bytes: of the device's memory; 0 where nobody counts it.
        error: the smallest tolerance that the gradients of the first step are within.
        error_of: which of them that is.
        about: what it says of itself; all that it has if it cannot run.
        sites: which kernels its path has, and at how many sites, and what the search notes.
        parts: seconds of each part, by name, in order; that of making the module first.
    """

    name: str
    ready_seconds: float = 0.0
    bytes: int = 0
    error: float | None = None
    error_of: str = ""
    about: str = ""
    sites: str = ""
    parts: dict[str, float] = field(default_factory=dict)


class Watch:
    """Seconds of parts that follow one another, by their names."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._began = time.perf_counter()

    def ends(self, name: str) -> None:
        """A part ends, and the next begins."""
        now = time.perf_counter()
        self.parts[name], self._began = now - self._began, now


class Contestant(ABC):
    """A training step with its state on a device.

    Arguments:
        watch: started when making it begins.
    """

    name: str
    about = ""

    def __init__(self) -> None:
        self.watch = Watch()

    def sites(self) -> str:
        """As of `Made`."""
        return ""

    @abstractmethod
    def step(self) -> None:
        """Begin one step."""

    @abstractmethod
    def loss(self) -> float:
        """The loss of the last step, when it has ended."""

    @abstractmethod
    def moments(self) -> Iterator[tuple[str, Any]]:
        """First moments, by the names of parameters in the module, on the host."""

    @abstractmethod
    def bytes(self) -> int:
        """Of the device's memory that a step takes."""


class WithPCP(Contestant):
    """PCP, within a tolerance, or, if that is 0, as the program is written, or by the fastest kernels without a search.

    Arguments:
        rounding: of these kernels, as of `fastest`; None for none of them.
    """

    def __init__(self, task: Task, tolerance: float, budget: float, rounding: float | None = None) -> None:
        super().__init__()
        module = made(task.model, task.layers)
        self.watch.ends("model")
        imported = pcp.from_torch(module, *task.batch())
        self.watch.ends("import")
        optimizer = pcp.optimizers.adamw(RATE, betas=BETAS, weight_decay=DECAY)
        step = pcp.training_step(imported.program, optimizer)
        self.watch.ends("step")
        more: dict[str, Any] = {}
        if tolerance:
            more = {"tolerance": tolerance, "budget": budget, "memory": task.memory}
        self.tolerance, self.name = (
            tolerance,
            f"PCP within {tolerance:g}" if tolerance else "PCP, not searched",
        )
        if rounding is None:
            self.plan = pcp.plan(step, device=task.device, **more)
        else:
            self.plan = fastest(step, task.device, rounding)
            self.name = f"PCP, fastest kernels, {'bf16' if rounding else 'float32'}"
        self.watch.ends("plan")
        if tolerance:
            error = self.plan.error
            self.about = "not measured in time" if error is None else f"the plan's error {error:.2g}"
            self.about += f"; {self.plan.fit}" if self.plan.fit else ""
        place, batch = self.plan.target.place, task.batch()
        entries = step.arguments[-len(batch) :]
        self.batch = tuple(place(each, entry.spec) for each, entry in zip(batch, entries, strict=True))
        buffers = (imported.buffers,) if imported.buffers else ()
        self.now: Any = (step.initial_state(imported.weights, *buffers), {})
        self.watch.ends("state")

    def sites(self) -> str:
        """As of `Made`."""
        if not self.tolerance:
            return ""
        kernels = Counter(choice.kernel for choice in self.plan.path.choices.values())
        listed = ", ".join(f"{count} x {name}" for name, count in kernels.most_common()) or "no kernels"
        notes = self.plan.to_json()["notes"]
        return "; ".join([*words_of(self.plan.path.forms), listed, *notes])

    def step(self) -> None:
        """As of `Contestant`."""
        self.now = self.plan.run(self.now[0], self.batch)

    def loss(self) -> float:
        """As of `Contestant`."""
        jax.block_until_ready(self.now)
        return float(self.now[1]["loss"])

    def moments(self) -> Iterator[tuple[str, Any]]:
        """As of `Contestant`."""
        first = self.now[0]["optimizer"]["first"]
        yield from ((name, np.asarray(first[name])) for name in first if first[name] is not None)

    def bytes(self) -> int:
        """As of `Contestant`."""
        return next(iter(self.plan.memory.values())).peak


class WithTorch(Contestant):
    """PyTorch with bf16 autocast or without, AdamW fused; eager or compiled."""

    def __init__(self, task: Task, compiled: bool, autocast: bool) -> None:
        super().__init__()
        import torch

        self.kind = task.device.partition(":")[0]
        self.name = ("torch.compile" if compiled else "PyTorch, eager") + (
            ", bf16 autocast" if autocast else ", float32"
        )
        self.autocast = autocast
        self.module = made(task.model, task.layers).to(self.kind)
        self.watch.ends("model")
        self.called = torch.compile(self.module) if compiled else self.module
        self.batch = [torch.from_numpy(each).to(self.kind) for each in task.batch()]
        self.optimizer = torch.optim.AdamW(
            self.module.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY, fused=True
        )

    def step(self) -> None:
        """As of `Contestant`."""
        import torch

        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.autocast):
            value = self.called(*self.batch)
        value.backward()
        self.optimizer.step()
        self.last = value.detach()

    def loss(self) -> float:
        """As of `Contestant`."""
        return float(self.last.item())

    def moments(self) -> Iterator[tuple[str, Any]]:
        """As of `Contestant`."""
        for name, entry in self.module.named_parameters():
            if entry in self.optimizer.state:
                yield name, self.optimizer.state[entry]["exp_avg"].cpu().numpy()

    def bytes(self) -> int:
        """As of `Contestant`."""
        import torch

        return int(torch.cuda.max_memory_allocated()) if self.kind == "cuda" else 0


CONTESTANTS = {
    "planned": WithPCP,
    "plain": lambda task, *_: WithPCP(task, 0.0, 0.0),
    "fastest": lambda task, *_: WithPCP(task, 0.0, 0.0, BF16),
    "fastest f32": lambda task, *_: WithPCP(task, 0.0, 0.0, 0.0),
    "torch.compile": lambda task, *_: WithTorch(task, True, True),
    "eager": lambda task, *_: WithTorch(task, False, True),
    "torch.compile f32": lambda task, *_: WithTorch(task, True, False),
    "eager f32": lambda task, *_: WithTorch(task, False, False),
}
"""How each is made, of a task, a tolerance and seconds of planning."""


def right_gradient(task: Task) -> tuple[None, Run]:
    """Compute the gradient in float64 by eager PyTorch, part by part, in a process that ends first."""
    import torch

    kind = task.device.partition(":")[0]
    module = made(task.model, task.layers).double().to(kind)
    batch = [torch.from_numpy(each).to(kind) for each in task.batch()]
    batch = [each.double() if each.is_floating_point() else each for each in batch]
    most = 1 if MODELS[task.model].together else PARTS
    parts = max(part for part in range(1, most + 1) if task.samples % part == 0)
    for some in zip(*(each.chunk(parts) for each in batch), strict=True):
        (module(*some) / parts).backward()  # the loss is a mean over equally many
    for name, entry in module.named_parameters():
        if entry.grad is not None:
            np.save(Path(task.folder) / f"{name}.npy", entry.grad.cpu().numpy())
    return None, lambda _: None


def contestant(kind: str, task: Task, tolerance: float, budget: float) -> tuple[Made, Run] | None:
    """A contestant after its first step, and a function that takes a number of steps and gives the last loss; None if memory
    was not enough.
    """
    try:
        one = CONTESTANTS[kind](task, tolerance, budget)
        one.step()
        one.loss()
        one.watch.ends("first step")
        error, name = _error_of(one, Path(task.folder))
    except Exception as problem:
        if is_lack_of_memory(problem):
            return None
        if isinstance(problem, PCPError):  # a plan that cannot be had is a result
            return Made(kind, about=f"{type(problem).__name__}: {problem}"), lambda _: 0.0
        if isinstance(problem, ModuleNotFoundError):
            return Made(kind, about=f"{problem.name} is not installed"), lambda _: 0.0
        raise

    def run(steps: int) -> float:
        for _ in range(steps):
            one.step()
        return one.loss()

    parts = one.watch.parts
    ready = sum(parts.values()) - parts["model"]
    return Made(one.name, ready, one.bytes(), error, name, one.about, one.sites(), parts), run


def _error_of(one: Contestant, folder: Path) -> tuple[float, str]:
    """The smallest tolerance that all gradients of a first step are within, and the one that needs it, by PCP's definition.

    A gradient that is nothing beside all, as that of a key bias, is judged on their scale.
    """
    comparison = Comparison(Target.of("cpu:0"), compiled=False)
    right = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    count = sum(each.size for each in right.values())
    size = math.sqrt(math.fsum(float(np.square(each).sum()) for each in right.values()) / count)
    largest = (0.0, "")
    for name, moment in one.moments():
        exact = right[name]
        is_nothing = math.sqrt(float(np.square(exact).mean())) < NOTHING * size
        scale = Scale.of_elements(size, exact.shape) if is_nothing else comparison.scale(exact, 0.0, None)
        distance = comparison.distance(moment / (1 - BETAS[0]), exact.astype(np.float64), scale)
        largest = max(largest, (least_tolerance(distance.error, distance.slice_error), name))
    return largest
