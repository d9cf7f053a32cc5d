"""A run that begins: its programs, data and first parameters are stored, and its plan is made."""

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import Coordinator, RunConfig, TimeoutPolicy
from pcp.distributed.job import Job
from pcp.distributed.merger import Merger
from pcp.distributed.programs import worker_programs
from pcp.distributed.wire.blobs import BlobStore
from pcp.training.recipe import Recipe
from pcp.training.run_folder import RunFolder

MISSED_HEARTBEATS = 10
"""A worker whose connection stands but is silent may be busy; one whose connection broke is known to be gone at once."""


def new_run(folder: RunFolder, recipe: Recipe, store: BlobStore, merger: Merger) -> Coordinator:
    """Store everything that workers will fetch, and return the coordinator of the run.

    Arguments:
        folder: of the run; its name becomes part of the run's.
        recipe: what is trained.
        store: where blobs are.
        merger: makes the first parameters.
    """
    config, data = recipe.config, recipe.data
    programs = worker_programs(recipe.step, recipe.parameters)
    job = Job(
        programs={
            "start": store.put(programs.start.artifact()),
            "adopt": store.put(programs.adopt.artifact()),
            "step": store.put(programs.step.artifact()),
            "delta": store.put(programs.delta.artifact()),
        },
        data=store.put(data.file.read_bytes()),
        batch=config.batch,
        context=data.context,
        seed=config.seed,
        vocabulary=data.vocabulary,
        kind=data.kind,
    )
    parameters, momentum = merger.begin()
    plan = RunConfig(
        run_id=f"{folder.path.name}-{recipe.step.digest[:12]}",
        workers=config.workers,
        rounds=config.steps // config.inner_steps,
        algorithm=DiLoCo(config.inner_steps, config.outer_learning_rate, config.outer_momentum),
        description=job.to_json(),
        blobs=job.blobs,
        update_bytes=parameters.size,  # a pseudo-gradient is a file of the same arrays
        tokens_per_batch=recipe.tokens_per_step,
        missed_heartbeats=MISSED_HEARTBEATS,
        lease=TimeoutPolicy(initial_seconds=1800.0, slack=4.0, floor_seconds=30.0),
        checkpoint_every=max(1, (config.checkpoint_every or config.steps) // config.inner_steps),
    )
    return Coordinator.create(plan, parameters, momentum)
