"""The runs that are lived: small ones of every kind."""

from random import Random
from typing import Any

from pcp.distributed.algorithms import DecoupledDiLoCo, DiLoCo, NoLoCo, SparseLoCo, StreamingDiLoCo
from pcp.distributed.coordinator import RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.audit.policy import AuditPolicy


def config_of(random: Random) -> RunConfig:
    """A small run of some kind."""
    algorithm: Any = random.choice(
        (
            DiLoCo(inner_steps=4),
            SparseLoCo(inner_steps=4),
            StreamingDiLoCo(inner_steps=8, fragments=2, delay=2),
            DecoupledDiLoCo(inner_steps=8, fragments=2, delay=2),
            NoLoCo(4, 12),
            NoLoCo(4, 12),
        )
    )
    audits = AuditPolicy(rate=random.choice((0.5, 1.0)), pieces=2, seed=random.randrange(99))
    pairs = isinstance(algorithm, NoLoCo)
    return RunConfig(
        run_id="fuzz",
        batches=random.choice((11, 24, 50, 120)),
        algorithm=algorithm,
        workers=random.choice((1, 2, 3)),
        update_bytes=random.choice(((), (40,) * algorithm.fragments)),
        tokens_per_batch=random.choice((0, 10)),
        quorum=1.0 if pairs else random.choice((1.0, 0.5)),
        patience_seconds=20.0,
        heartbeat_seconds=1.0,
        reconnect_seconds=random.choice((2.0, 30.0)),
        lease=TimeoutPolicy(initial_seconds=600.0, floor_seconds=30.0, cap_seconds=3000.0),
        step_budgets=random.random() < 0.7,
        audits=audits if not pairs and random.random() < 0.3 else AuditPolicy(),
        checkpoint_every=random.choice((1, 10)),
    )
