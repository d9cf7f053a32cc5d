"""A Ray cluster of three nodes, and what is asked of it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.distributed.waiting import is_gone, wait_until

# Before Ray is imported, here and in every process of a cluster: addresses of the loopback interface, and nothing told anybody.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",  # a killed node is seen within seconds
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "8",  # but not one that a busy machine makes slow
}
os.environ.update(ENVIRONMENT)

STORE_BYTES = 100 << 20

FORKS = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
"""Ray starts its processes by forks, which at once become other programs; JAX warns of every fork."""


@dataclass
class RayCluster:
    """A cluster of nodes of one processor each, and one without for the Shepherd.

    Arguments:
        made: Ray's own.
        nodes: those with a processor.
        processes: all that were seen.
    """

    made: Any
    nodes: list[Any] = field(default_factory=list)
    processes: set[int] = field(default_factory=set)

    @property
    def address(self) -> str:
        return str(self.made.address)

    def add_node(self) -> None:
        node = self.made.add_node(
            num_cpus=1,
            object_store_memory=STORE_BYTES,
            node_ip_address="127.0.0.1",
            include_log_monitor=False,
        )
        self.nodes.append(node)
        self.remember()

    def kill_node(self) -> None:
        self.made.remove_node(self.nodes.pop(0), allow_graceful=False)

    def remember(self) -> None:
        for node in [self.made.head_node, *self.nodes]:
            for infos in node.all_processes.values():
                self.processes |= {info.process.pid for info in infos}


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    """The cluster; none of its processes is left afterwards."""
    ray = pytest.importorskip("ray")
    utils = pytest.importorskip("ray.cluster_utils")
    head = {
        "num_cpus": 0,
        "object_store_memory": STORE_BYTES,
        "include_dashboard": False,
        "include_log_monitor": False,
        "node_ip_address": "127.0.0.1",
    }
    made = RayCluster(utils.Cluster(initialize_head=True, head_node_args=head))
    try:
        made.add_node()
        made.add_node()
        yield made
    finally:
        ray.shutdown()
        made.made.shutdown()
    wait_until(lambda: all(is_gone(pid) for pid in made.processes), 30.0)
