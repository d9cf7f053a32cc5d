"""What of a cluster each Worker gets, and what is said where it cannot be."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("ray")

from pcp.distributed.engines.ray.cluster import (
    ClusterTooSmall,
    ClusterUnreachable,
    accelerators_each,
    connect,
    processors_each,
)
from pcp.distributed.engines.ray.worker import hold_processors


@pytest.mark.parametrize(
    ("nodes", "workers", "share"),
    [
        ([8], 1, 8),
        ([8], 3, 2),
        ([8, 8, 8], 6, 4),
        ([3, 3], 4, 1),
        ([2, 4], 2, 2),
        ([2, 4], 3, 2),
        ([0, 1, 1], 2, 1),
        ([64, 1], 2, 32),
    ],
)
def test_workers_get_the_most_processors_that_all_can_have_alike(
    nodes: list[int], workers: int, share: int
) -> None:
    assert processors_each(nodes, workers) == share


def test_more_workers_than_processors_or_gpus_are_refused() -> None:
    with pytest.raises(ClusterTooSmall, match=r"5 workers .* has 4 processors for them: .* --workers 4"):
        processors_each([2, 2], 5)
    with pytest.raises(ClusterTooSmall, match=r"1 workers .* has 0 processors"):
        processors_each([], 1)
    assert accelerators_each([1, 2], 3) == 1
    with pytest.raises(ClusterTooSmall, match=r"3 workers .* has 2 GPUs .* or --device cpu:0"):
        accelerators_each([0, 2], 3)


def test_the_address_of_a_client_is_refused() -> None:
    with pytest.raises(
        ClusterUnreachable, match="run this command on a node of the cluster, with --address auto"
    ):
        connect("ray://192.0.2.1:10001", "pcp:here")


def test_workers_of_a_node_hold_unlike_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    everything = sorted(os.sched_getaffinity(0))
    if len(everything) < 2:
        pytest.skip("one processor cannot be shared out")

    def hold(count: int) -> tuple[list[int], list[int]]:
        """Locks and processors of a thread of its own, as affinity is a thread's."""
        return hold_processors(count), sorted(os.sched_getaffinity(0))

    def held(count: int) -> tuple[list[int], list[int]]:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(hold, count).result()

    first, processors = held(1)
    assert processors == everything[:1]
    second, processors = held(1)
    assert processors == everything[1:2]
    assert held(len(everything)) == ([], everything), "too few are free: all are used"
    for lock in first:
        os.close(lock)
    third, processors = held(1)
    assert processors == everything[:1], "what ended is free again"
    for lock in second + third:
        os.close(lock)
