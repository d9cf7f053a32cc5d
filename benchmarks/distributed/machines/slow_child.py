"""The process in which a Worker's programs run, where a training step takes as long as it is told to.

`BENCHMARK`-variables do not reach a confined process, those of PCP do: PCP_STEP_SECONDS says how long a step takes at least;
PCP_STEP_STANDS_IN, a number of steps, says that it only sleeps, and changes the parameters a little once in so many steps.
After each step a line on standard error says when it ended, and the processor time of this process so far: `step 12.5 3.25`.
"""

import logging
import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

from pcp.distributed.round_arithmetic.replica import Runs
from pcp.distributed.worker.programs import training_child
from pcp.distributed.worker.training import trainer


class SlowStep:
    """A training step that takes at least so many seconds.

    Arguments:
        step: what it computes.
        seconds: how long it takes.
    """

    def __init__(self, step: Runs, seconds: float) -> None:
        self._step, self._seconds = step, seconds

    def run(self, *arguments: Any) -> Any:
        """The results of the step, when it has taken long enough."""
        ends = time.monotonic() + self._seconds
        made = jax.block_until_ready(self._step.run(*arguments))
        time.sleep(max(0.0, ends - time.monotonic()))
        print(f"step {time.monotonic():.4f} {time.process_time():.3f}", file=sys.stderr, flush=True)
        return made


class StandIn:
    """A step that computes nothing, but moves what is pushed once in so many steps, elsewhere than other Workers do.

    A push that is the same as another's would not be sent: the Shepherd has it by its digest.
    """

    def __init__(self, every: int) -> None:
        self._every, self._done = every, 0
        self._moved = jax.jit(
            lambda tree, number: jax.tree.map(lambda x: _moved(x, number), tree), donate_argnums=0
        )

    def run(self, state: Any, *_: Any) -> Any:
        """A state, and a loss."""
        if self._done % self._every == 0:
            # What is pushed are gradients, or how far the parameters moved.
            pushed = "optimizer" if "sum" in state["optimizer"] else "params"
            number = jnp.uint32(hash((os.getpid(), self._done)) % 2**32)
            state = state | {pushed: self._moved(state[pushed], number)}
        self._done += 1
        return state, {"loss": jnp.float32(1.0)}


def _moved(array: Any, number: Any) -> Any:
    """An array with other numbers, from -1e-3 to 1e-3, added to each element; one more for a count."""
    if not array.shape:
        return array + 1
    place = jax.lax.iota(jnp.uint32, array.size).reshape(array.shape) + number
    mixed = (place * jnp.uint32(2654435761)) ^ (place >> 7)
    return array + (mixed.astype(jnp.int32).astype(jnp.float32) * jnp.float32(2**-31 * 1e-3))


def make_trainer(*arguments: Any, **named: Any) -> trainer.InnerTrainer:
    """The trainer of a run, as `pcp worker` makes it, but for its step."""
    made = trainer.make_trainer(*arguments, **named)
    plans: dict[str, Runs] = made._replica._plans  # type: ignore[assignment]  # nobody else replaces a step
    every = int(os.environ.get("PCP_STEP_STANDS_IN", "0"))
    step = StandIn(every) if every else plans["step"]
    plans["step"] = SlowStep(step, float(os.environ["PCP_STEP_SECONDS"]))
    return made


if __name__ == "__main__":
    training_child.make_trainer = make_trainer
    level = logging.getLevelNamesMapping().get(os.environ.get("PCP_LOG", "").upper(), logging.WARNING)
    logging.basicConfig(level=level, format="%(message)s")
    training_child.TrainingChild().run()
