"""Environment variables that turn off what PCP does by itself."""

import logging
import os

log = logging.getLogger("pcp.backends.switches")


def is_switched_off(variable: str, otherwise: str) -> bool:
    """Whether an environment variable is `0`; a warning if it is neither that, nor `1`, nor empty.

    Arguments:
        variable: its name.
        otherwise: what happens if it is not `0`, for the warning.
    """
    said = os.environ.get(variable, "")
    if said not in ("", "0", "1"):
        log.warning("%s is %r; expected 0 or 1; %s", variable, said, otherwise)
    return said == "0"
