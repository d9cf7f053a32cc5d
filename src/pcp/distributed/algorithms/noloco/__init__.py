"""NoLoCo: workers exchange in random pairs; nobody merges all of them, and the run needs no Shepherd while it trains."""

from pcp.distributed.algorithms.noloco.description import NoLoCo as NoLoCo
