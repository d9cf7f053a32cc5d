"""Where PCP keeps what outlives a process."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """For what PCP may make again: the folder `PCP_CACHE_DIR`, else one in the user's cache folder."""
    own = os.environ.get("PCP_CACHE_DIR", "")
    users = os.environ.get("XDG_CACHE_HOME", "")
    return Path(own) if own else (Path(users) if os.path.isabs(users) else Path.home() / ".cache") / "pcp"


def data_folder() -> Path:
    """For what PCP cannot make again: the folder `PCP_DATA_DIR`, else one in the user's data folder."""
    own = os.environ.get("PCP_DATA_DIR", "")
    users = os.environ.get("XDG_DATA_HOME", "")
    base = Path(users) if os.path.isabs(users) else Path.home() / ".local" / "share"
    return Path(own) if own else base / "pcp"
