"""Native libraries that outlive a run of the suite, and are built quickly: for every kind of processor that takes minutes."""

import contextlib
import os
import shlex
import shutil
import time
from pathlib import Path

import pytest

LONGEST_KEPT_SECONDS = 7 * 24 * 3600.0


def folder_of_builds(config: pytest.Config, home: Path) -> Path:
    """Where the builds of this checkout are: in pytest's cache, or at home where it keeps none.

    A build is found by the digest of its source, its compiler, its flags and XLA's headers, and tests of building itself have
    folders of their own, so what is kept proves as much as what is built again. Old builds go, whose sources may have changed.
    What a quick compiler builds has the same digest, and a folder of its own.
    """
    cache = getattr(config, "cache", None)
    folder = (home if cache is None else cache.mkdir("builds")) / ("native" if is_optimised() else "quick")
    folder.mkdir(exist_ok=True)
    oldest = time.time() - LONGEST_KEPT_SECONDS
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):  # another run of the suite may do the same
            if entry.stat().st_mtime < oldest:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return folder


def is_optimised() -> bool:
    """Whether this run of the suite compiles for speed."""
    return bool(os.environ.get("PCP_TEST_OPTIMISED"))


def put_quick_compiler_first(home: Path) -> None:
    """Have `c++` optimise little in this process and those it starts, which takes half the time and gives the same numbers.

    Where CXX names a compiler, that is what builds.
    """
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None or is_optimised():
        return
    folder = home / "compiler"
    folder.mkdir()
    script = folder / "c++"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(found)} "$@" -O1\n')
    script.chmod(0o700)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
