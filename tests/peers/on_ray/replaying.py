"""What the merged batches of a run of data parallel training lead to, computed without a Shepherd or Workers."""

from functools import partial
from typing import Any

from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.merging import merge
from pcp.distributed.round_arithmetic.outer import OuterSteps, Stepped
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.planning import plan
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder

Record = dict[str, Any]


def batches_of(rounds: list[Record], tokens_per_batch: int, both: int) -> list[range]:
    """The batches of each round, from the tokens behind it; a round that was merged but not told of had all of them."""
    found: list[range] = []
    done = 0
    for record in rounds:
        while len(found) < record["round"] - 1:
            found.append(range(done, done := done + both))
        found.append(range(done, done := record["tokens"] // tokens_per_batch))
    return found


def replay(folder: RunFolder, rounds: list[range]) -> Any:
    """The parameters after rounds, each the mean gradient of its batches and a step of the run's optimizer."""
    recipe = prepare(folder)
    algorithm, workers = algorithm_of(recipe.config), recipe.config.workers
    programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
    replica = Replica({name: plan(program, device="cpu:0") for name, program in programs.items()})
    outer = OuterSteps(recipe, algorithm, "cpu:0")
    combine = merge(algorithm.merge, outer.segments(0), "cpu:0")
    stepped, kept = Stepped(*outer.first(0), None), None
    for batches in rounds:
        first_step = batches.start // workers
        gradients = []
        for batch in batches:
            replica.fresh([stepped.shadow], first_step)
            replica.begin(first_step, [0])
            replica.step(recipe.batches.batch(batch))
            replica.finish()
            gradients.append(outer.decoded(0, replica.push(0)))
        merged = combine(
            [partial(_given, each) for each in gradients], [1 / len(gradients)] * len(gradients), kept
        )
        kept = merged.state
        stepped = outer.take(0, stepped.shadow, stepped.state, merged.mean, first_step, 1.0)
    return outer.parameters((stepped.shadow,))


def _given(gradient: Any) -> Any:
    return gradient
