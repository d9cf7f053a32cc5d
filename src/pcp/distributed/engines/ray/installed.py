"""Ray as a package: whether it is here, and what must be said to it before it is imported."""

import os

from pcp.training.extras import import_extra

# Ray knows this one for other systems: all processes of a cluster then listen on the loopback interface only.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0"}


def import_ray(address: str | None) -> None:
    """Import Ray, for a cluster at an address; None is for one of this machine alone, which nobody else shall reach.

    Raises:
        MissingExtra: it is not installed.
    """
    os.environ.update(_SILENT | (_LOOPBACK if address is None else {}))
    import_extra("ray", "ray", "Training on a Ray cluster")
