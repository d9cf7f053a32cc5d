"""Native libraries that outlive a run of the suite: to build them for every kind of processor takes minutes."""

import contextlib
import shutil
import time
from pathlib import Path

import pytest

LONGEST_KEPT_SECONDS = 7 * 24 * 3600.0


def folder_of_builds(config: pytest.Config, home: Path) -> Path:
    """Where the builds of this checkout are: in pytest's cache, or at home where it keeps none.

    A build is found by the digest of its source, its compiler, its flags and XLA's headers, and tests of building itself have
    folders of their own, so what is kept proves as much as what is built again. Old builds go, whose sources may have changed.
    """
    cache = getattr(config, "cache", None)
    folder = (home if cache is None else cache.mkdir("builds")) / "native"
    folder.mkdir(exist_ok=True)
    oldest = time.time() - LONGEST_KEPT_SECONDS
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):  # another run of the suite may do the same
            if entry.stat().st_mtime < oldest:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return folder
