"""A run that begins: its programs, data and first parameters are stored, and its plan is made."""

import secrets
import time
from collections.abc import Callable

from pcp.distributed.algorithm_choice import algorithm_of, quorum_of
from pcp.distributed.algorithms import Algorithm, Topology, overlaps
from pcp.distributed.coordinator import Coordinator, RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.gossip.offers import offer_bytes
from pcp.distributed.job import Job, Term, signed
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.verification import check
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.artifacts import chips_of
from pcp.errors import PCPError
from pcp.planning.artifact import compile_ahead
from pcp.training.recipes.config import InvalidTrainingConfig
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder

AUDIT_PIECES = 4
"""Of a lease: what an audit repeats is a quarter of its steps."""

MISSED_HEARTBEATS = 10
"""A worker whose connection stands but is silent may be busy; one whose connection broke is known to be gone at once."""


LONG_LEASE = TimeoutPolicy(initial_seconds=30 * 86400.0, cap_seconds=30 * 86400.0, floor_seconds=60.0)
"""Of workers that exchange in pairs, whose leases last as long as the run. Those that others are done with long ago expire."""

LONG_ABSENCE_SECONDS = 600.0
"""How long such a worker may be silent or away before others begin what it trains from the start."""


class NothingToSignWith(PCPError):
    """A run is to begin where the key of its authority is not."""


def check_run(recipe: Recipe) -> None:
    """Make sure that workers will take what they are going to be sent.

    Raises:
        InvalidTrainingConfig: the settings make no algorithm, or a run with workers has no such settings.
        TooManyFragments: the parameters are fewer arrays than fragments were asked for.
        ProgramRefused: the step does what no worker allows.
        InvalidTarget, NotForArtifacts: nothing is compiled ahead for a chip that the setting `artifacts` names.
    """
    if recipe.config.memory:
        raise InvalidTrainingConfig(
            f"memory is {recipe.config.memory!r}, but Workers do not fit their steps into memory; leave it out, or train in "
            "one process"
        )
    if recipe.buffers is not None:
        raise InvalidTrainingConfig(
            f"{recipe.config.model} changes a state beside its parameters, such as running means. Workers send parameters "
            "alone, so what each keeps of its own data would be lost; train in one process, without --workers, or export the "
            "loss with the state frozen, as by model.eval()"
        )
    if recipe.config.artifacts and recipe.held:
        raise InvalidTrainingConfig(
            f"artifacts is {recipe.config.artifacts!r}, but a step with weights that stay, as of lora, is compiled where they "
            "are bound; leave it out"
        )
    chips_of(recipe.config.artifacts)
    algorithm = algorithm_of(recipe.config)
    partition(recipe.parameters, algorithm.fragments)
    check(inner_step(recipe, algorithm))


def new_run(
    folder: RunFolder,
    recipe: Recipe,
    algorithm: Algorithm,
    store: BlobStore,
    merger: Merger,
    sign: Callable[[bytes], bytes] | None,
) -> Coordinator:
    """Store everything that workers will fetch, and return the coordinator of the run.

    Arguments:
        folder: of the run; its name becomes part of the run's.
        recipe: what is trained.
        algorithm: how it is merged.
        store: where blobs are.
        merger: makes the first parameters.
        sign: by the run's authority; Workers run nothing else. None where its key is elsewhere.

    Raises:
        NothingToSignWith: nobody signs.
        CompilationFailed: the programs cannot be compiled for a chip that the setting `artifacts` names.
    """
    if sign is None:
        raise NothingToSignWith(
            f"{folder.path} holds no run yet, and Workers run only what the run's authority signed; begin the run where "
            "keys/authority.key is"
        )
    config, data = recipe.config, recipe.data
    step = inner_step(recipe, algorithm)
    in_pairs = algorithm.topology is Topology.PAIRS
    programs = worker_programs(step, recipe.parameters, algorithm)
    job = Job(
        programs={name: store.put(program.artifact(named=True)) for name, program in programs.items()},
        data=store.put(data.file.read_bytes()),
        batch=config.batch,
        context=data.context,
        seed=config.seed,
        vocabulary=data.vocabulary,
        kind=data.kind,
        place=data.place,
        tolerance=config.tolerance,
        plan_seconds=config.plan_seconds,
        overlap=overlaps(algorithm),
        pieces=AUDIT_PIECES if config.audit_rate else 0,
        exchange_every=algorithm.inner_steps if in_pairs else 0,
        offer_bytes=offer_bytes(merger.partition.size(0)) if in_pairs else 0,
        held=store.put(folder.held_file.read_bytes()) if recipe.held else None,
        artifacts={
            chip: {name: store.put(compile_ahead(each, chip).to_bytes()) for name, each in programs.items()}
            for chip in chips_of(config.artifacts)
        },
    )
    run_id = f"{folder.path.name}-{step.digest[:12]}-{secrets.token_hex(6)}"
    every = (config.checkpoint_every or config.steps) // algorithm.inner_steps
    plan = RunConfig(
        run_id=run_id,
        batches=config.steps * config.workers,
        workers=config.workers,
        algorithm=algorithm,
        description=signed(job.to_json(), sign, Term.of(run_id, time.time())),
        blobs=job.offered,
        update_bytes=merger.payload_bytes(),
        tokens_per_batch=recipe.tokens_per_step,
        quorum=quorum_of(config),
        step_budgets=config.shares == "measured",
        missed_heartbeats=int(LONG_ABSENCE_SECONDS) if in_pairs else MISSED_HEARTBEATS,
        reconnect_seconds=LONG_ABSENCE_SECONDS if in_pairs else 2.0,
        lease=LONG_LEASE
        if in_pairs
        else TimeoutPolicy(initial_seconds=1800.0, slack=4.0, floor_seconds=30.0),
        audits=AuditPolicy(config.audit_rate, AUDIT_PIECES, config.audit_tolerance, secrets.randbits(63)),
        checkpoint_every=max(1, every) * algorithm.fragments,
    )
    return Coordinator.create(plan, merger.begin(), (None,) * algorithm.fragments)
