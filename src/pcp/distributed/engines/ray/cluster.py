"""Connecting to a Ray cluster, and what of it each Worker of a run gets."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from pcp.errors import PCPError

_LENT = ("PCP_CACHE_DIR", "PCP_LOG")


class ClusterUnreachable(PCPError):
    """There is no Ray cluster where one was asked for, or this process cannot be part of it."""


class ClusterLost(PCPError):
    """The cluster goes on without this node, or is gone."""


class ClusterTooSmall(PCPError):
    """A cluster that does not have what the run's Workers need."""


@dataclass(frozen=True, slots=True)
class Share:
    """What each Worker gets.

    Arguments:
        processors: of a node.
        accelerators: of a node; 0 or 1.
        device: where it computes, among what Ray lets it see.
    """

    processors: int
    accelerators: int
    device: str


def connect(address: str | None, namespace: str) -> None:
    """Make this process part of a cluster, until `ray.shutdown`.

    Arguments:
        address: `auto` for the cluster that this machine belongs to, or `HOST:PORT`; None for a new one of this machine alone.

        namespace: in which the run's actors have their names.

    Raises:
        ClusterUnreachable: there is none.
    """
    if address is not None and address.startswith("ray://"):
        raise ClusterUnreachable(
            f"{address} is the address of a Ray client, whose files the cluster does not see; run this command on a node of "
            "the cluster, with --address auto"
        )
    settings: dict[str, Any] = {"address": address or "local", "namespace": namespace, "log_to_driver": False}
    if address is None:
        settings["include_dashboard"] = False
    variables = {name: os.environ[name] for name in _LENT if os.environ.get(name)}
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(logging_level="ERROR", runtime_env={"env_vars": variables}, **settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterUnreachable(
            f"no Ray cluster can be reached at {address}: {error}. Start one (ray start --head), or leave out --address "
            "for one of this machine alone"
        ) from None
    signal.signal(signal.SIGTERM, terminate)  # Ray has one of its own


def is_connected() -> bool:
    """Whether this process is still part of its cluster; Ray lets the program of a node that was lost wait for ever."""
    here = ray.get_runtime_context().get_node_id()
    return any(node["Alive"] for node in ray.nodes() if node["NodeID"] == here)


def share_of_cluster(workers: int, device: str) -> Share:
    """What each Worker gets of the cluster.

    Arguments:
        workers: how many there are.
        device: `cpu:0` for processors; anything else for an accelerator each.

    Raises:
        ClusterTooSmall: there are more Workers than processors, or accelerators.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not device.startswith("cpu"):
        return Share(1, accelerators_each([int(node.get("GPU", 0)) for node in nodes], workers), "cuda:0")
    return Share(processors_each([int(node.get("CPU", 0)) for node in nodes], workers), 0, "cpu:0")


def processors_each(nodes: Sequence[int], workers: int) -> int:
    """The most processors that every worker can have, each within one node.

    Arguments:
        nodes: processors of each node.

    Raises:
        ClusterTooSmall: there are more workers than processors.
    """
    for share in range(max(nodes, default=0), 0, -1):
        if sum(node // share for node in nodes) >= workers:
            return share
    raise ClusterTooSmall(
        f"{workers} workers were asked for, and the Ray cluster has {sum(nodes)} processors for them: add nodes, or give "
        f"--workers {max(1, sum(nodes))}"
    )


def accelerators_each(nodes: Sequence[int], workers: int) -> int:
    """One accelerator, if there is one for every worker.

    Raises:
        ClusterTooSmall: there is not.
    """
    if sum(nodes) < workers:
        raise ClusterTooSmall(
            f"{workers} workers were asked for, and the Ray cluster has {sum(nodes)} GPUs for them: add nodes, give "
            f"--workers {max(1, sum(nodes))}, or --device cpu:0"
        )
    return 1
