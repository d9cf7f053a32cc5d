"""GPT-2 of any published size: what a training step costs before it runs, and how fast it is.

    python examples/05_gpt2_training.py [--model gpt2] [--batch 4] [--context 256] [--steps 10]

It learns one random text by heart, so the loss must fall quickly; `pcp train` trains on real data.
"""

import argparse
import dataclasses
import time

import numpy as np

import pcp
from pcp.models import decoder
from pcp.models.parameters import parameter_count
from pcp.models.published import CONFIGURATIONS
from pcp.planning.capacity import human
from pcp.planning.diagnostics.cost import estimate_cost


def main() -> None:
    """Build the step, say what it costs, train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt2-nano", help=", ".join(CONFIGURATIONS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default=None)
    settings = parser.parse_args()

    config = dataclasses.replace(CONFIGURATIONS[settings.model], context=settings.context)
    parameters = decoder.initial_parameters(config)
    sequence = pcp.spec((settings.batch, settings.context), "i32")

    began = time.perf_counter()
    loss = pcp.trace(
        lambda params, tokens, targets: decoder.loss(params, tokens, targets, config),
        parameters,
        sequence,
        sequence,
    )
    schedule = pcp.optimizers.WarmupCosine(1e-3, min(5, settings.steps - 1), settings.steps, 1e-4)
    step = pcp.training_step(loss, pcp.optimizers.adamw(schedule, weight_decay=0.1), clip_norm=1.0)
    traced = time.perf_counter()
    plan = pcp.plan(step, device=settings.device)
    compiled = time.perf_counter()
    cost = estimate_cost(step)
    print(f"{settings.model}: {parameter_count(parameters):,} parameters on {plan.device}")
    print(f"traced and differentiated in {traced - began:.2f} s, compiled in {compiled - traced:.2f} s")
    print(
        f"a step: {cost.total.flops / 1e9:.2f} Gflop, {human(plan.memory[str(plan.device)].peak)} of memory"
    )

    text = np.random.default_rng(0).integers(
        0, config.vocabulary, (settings.batch, settings.context + 1), np.int32
    )
    batch = (np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:]))
    state = step.initial_state(parameters)
    state, metrics = plan.run(state, batch)
    losses = [float(metrics["loss"])]
    began = time.perf_counter()
    for _ in range(settings.steps - 1):
        state, metrics = plan.run(state, batch)
        losses.append(float(metrics["loss"]))
    seconds = (time.perf_counter() - began) / max(1, settings.steps - 1)
    speed = settings.batch * settings.context / seconds
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {settings.steps} steps")
    print(
        f"{seconds * 1e3:.1f} ms a step, {speed:,.0f} tokens/s, {cost.total.flops / seconds / 1e9:.1f} Gflop/s"
    )


if __name__ == "__main__":
    main()
