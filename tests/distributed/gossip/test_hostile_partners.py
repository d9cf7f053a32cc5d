"""What a hostile partner does to those that exchange with it: bounded, and without the bound whatever it likes."""

import numpy as np
import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.wire import BlobStore
from pcp.training.recipes.recipe import Recipe
from tests.distributed.gossip.lockstep import PairsLockstep, Tamper

WORKERS, EXCHANGES = 3, 6


def trained(recipe: Recipe, store: BlobStore, bound: float, tamper: Tamper | None) -> tuple[float, float]:
    """The worst loss and the longest weights of the honest after a few exchanges."""
    run = PairsLockstep(recipe, NoLoCo(3, 3 * EXCHANGES, partner_bound=bound), WORKERS, store, tamper)
    run.train()
    honest = range(WORKERS - 1)
    return max(map(run.loss_of, honest)), max(float(np.linalg.norm(run.weights(worker))) for worker in honest)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda theta, slow: (slow - 1e5 * (theta - slow), slow),
        lambda theta, slow: (theta + 1e5 * (theta - slow), slow + 1e5 * (theta - slow)),
        lambda theta, slow: (1000 * theta, -1000 * slow),
    ],
)
def test_a_partner_moves_nobody_far(recipe: Recipe, store: BlobStore, tamper: Tamper) -> None:
    honest, length = trained(recipe, store, 2.0, None)
    loss, longest = trained(recipe, store, 2.0, tamper)
    assert loss < honest + 0.2
    assert longest < 1.2 * length
    unbounded, far = trained(recipe, store, 0.0, tamper)
    assert unbounded > honest + 0.5 or np.isnan(unbounded)
    assert far > 3 * length or np.isnan(far)


def test_honest_partners_are_hardly_touched(recipe: Recipe, store: BlobStore) -> None:
    bounded, _ = trained(recipe, store, 2.0, None)
    unbounded, _ = trained(recipe, store, 0.0, None)
    assert bounded == pytest.approx(unbounded, abs=0.01)
