"""Namespaces of a benchmark: a network, mounts and process numbers of its own, all of which end with it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_MARK = "BENCHMARK_IS_ISOLATED"
WORDS = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


def isolate() -> None:
    """Begin this command again in namespaces of its own, unless it is there. Whatever it starts ends with it.

    Raises:
        SystemExit: this system does not let a user have such namespaces.
    """
    if os.environ.get(_MARK):
        signal.signal(
            signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
        )  # the first process ignores it otherwise
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    missing = [name for name in ("unshare", "nsenter", "ip", "gcc") if shutil.which(name) is None]
    if missing:
        raise SystemExit(
            f"this benchmark needs {', '.join(missing)} (util-linux, iproute2, gcc); install them and try again"
        )
    tried = subprocess.run([*WORDS, "true"], capture_output=True, text=True, check=False)
    if tried.returncode or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        reason = tried.stderr.strip() or "/dev/net/tun cannot be opened"
        raise SystemExit(
            f"this system gives users no namespaces and TUN devices of their own ({reason}); run it where it does"
        )
    sys.stdout.flush()
    os.environ[_MARK] = "1"
    os.execvp("unshare", [*WORDS, sys.executable, "-m", "benchmarks", *sys.argv[1:]])


def small_disk(folder: Path, megabytes: int) -> None:
    """Put a disk of that size, in memory, where a folder is to be."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder], check=True)


def built(source: str, folder: Path, *options: str) -> Path:
    """Build a C source of this folder."""
    made = folder / f"built-{Path(source).stem}"
    command = ["gcc", "-O2", *options, "-o", str(made), str(Path(__file__).with_name(source)), "-ldl", "-lm"]
    subprocess.run(command, check=True)
    return made
