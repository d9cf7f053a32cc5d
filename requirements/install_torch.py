"""Install the PyTorch that the parity tests compare with, and refuse a build that needs CUDA.

Run as `.venv/bin/python requirements/install_torch.py` (`make test-peers` does). pip is asked first what it
would take: on Linux the ordinary package needs gigabytes of CUDA libraries, and PCP's tests need none.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
from typing import Any

TORCH = "torch==2.13.0"

REFUSAL = """\
pip would install {file}, which needs {needs}.
The parity tests want a CPU build of {torch} for Python {python}, and no package index that pip knows has one.
Tell pip where to find it (PyTorch's installation page, compute platform 'CPU', names an index):
    export PIP_EXTRA_INDEX_URL=ADDRESS      or, for a wheel on disk,      export PIP_FIND_LINKS=FOLDER
and run `make test-peers` again."""


def pip(*arguments: str) -> str:
    """Run this interpreter's pip and return what it printed; its failure ends the script with its status."""
    command = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def cuda_requirements(package: dict[str, Any]) -> list[str]:
    """Return the CUDA libraries that a package of pip's installation report asks for on this machine."""
    if platform.system() != "Linux":
        return []
    requirements = package["metadata"].get("requires_dist", [])
    names = [re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" not in line]
    return [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))]


def main() -> None:
    """Install `TORCH`, or end with what to do where only a CUDA build is offered."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    report = pip("install", "--dry-run", "--quiet", "--no-deps", "--report", "-", TORCH)
    for package in json.loads(report)["install"]:
        if needs := cuda_requirements(package):
            file = package["download_info"]["url"].rsplit("/", 1)[-1]
            python = platform.python_version()
            needed = f"{needs[0]} and {len(needs) - 1} more packages of CUDA"
            sys.exit(REFUSAL.format(file=file, needs=needed, torch=TORCH, python=python))
    pip("install", "--quiet", "--no-compile", "--no-deps", TORCH)


if __name__ == "__main__":
    main()
