"""What this machine has of NVIDIA, read from its driver and from the packages that are installed, without starting CUDA."""

import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia")
"""Where the driver tells of itself, on Linux."""
NEEDED = {13: 580, 12: 525}
"""The oldest driver of each CUDA that JAX has a plug-in for, newest first; from JAX's page on installation."""
DISTRIBUTION = "planetary-compute-protocol"


@dataclass(frozen=True, slots=True)
class Nvidia:
    """GPUs that the driver sees, and what of JAX can use them.

    Arguments:
        gpus: their models; empty where there is no driver.
        driver: its version, as `580.95.05`; empty where it does not tell.
        plugins: versions of CUDA for which a plug-in of JAX is installed.
    """

    gpus: tuple[str, ...]
    driver: str
    plugins: tuple[int, ...]

    @property
    def advice(self) -> str:
        """What to install for these GPUs; empty where nothing is missing, or where there is no GPU."""
        major = int(self.driver.partition(".")[0] or 0)
        fitting = [cuda for cuda, oldest in NEEDED.items() if major >= oldest]
        if not self.gpus or set(self.plugins) & set(fitting):
            return ""
        if not fitting:
            return f"update the driver: it is {self.driver or 'of no known version'}, and CUDA 13 needs {NEEDED[13]} or newer"
        extra = "cuda" if fitting[0] == 13 else "cuda12"
        instead = f"; the plug-in for CUDA {self.plugins[0]} needs a newer driver" if self.plugins else ""
        return f"pip install '{DISTRIBUTION}[{extra}]', which brings CUDA {fitting[0]}{instead}"


def nvidia(driver: Path = DRIVER) -> Nvidia:
    """What is here."""
    try:
        told = re.search(
            r"Module\s+(?:for \S+\s+)?(\d+[\d.]*)", (driver / "version").read_text("utf-8", "replace")
        )
        files = sorted((driver / "gpus").glob("*/information"))
        models = [re.search(r"Model:\s*(.+)", each.read_text("utf-8", "replace")) for each in files]
    except OSError:
        told, models = None, []
    plugins = tuple(cuda for cuda in NEEDED if _is_installed(f"jax-cuda{cuda}-plugin"))
    return Nvidia(tuple(model[1].strip() for model in models if model), told[1] if told else "", plugins)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
