"""Puts PCP's native libraries, compiled for every kind of vector unit, into the wheel where a compiler and XLA's headers are.

All else that setuptools has to know stands in pyproject.toml.
"""

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

NATIVE = Path(__file__).parent / "src/pcp/kernels/native"
PACKAGED = "pcp/kernels/native/built"


def _loaded(name):
    """A file of PCP's that imports the standard library alone, without the rest of PCP."""
    spec = importlib.util.spec_from_file_location(f"pcp_native_{name}", NATIVE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


compiling, libraries = _loaded("compiling"), _loaded("libraries")


def _tools():
    """The compiler and the folder of XLA's headers; None where one is missing."""
    found = importlib.util.find_spec("jaxlib")
    include = Path(found.origin).parent / "include" if found and found.origin else None
    command = compiling.compiler()
    if command is None or include is None or not include.is_dir():
        print(f"native kernels are left out of the wheel: compiler {command}, headers of jaxlib in {include}")
        return None
    return command, include


TOOLS = _tools()


class BuildPy(build_py):
    def run(self):
        super().run()
        if TOOLS is not None and not self.editable_mode:
            folder = Path(self.build_lib) / PACKAGED
            with ThreadPoolExecutor(2) as pool:
                for each in libraries.LIBRARIES.values():
                    for needs, _ in compiling.VECTORS:
                        pool.submit(_build, each, needs, *TOOLS, folder)


def _build(library, needs, command, include, folder):
    """One that cannot be built, as flags for another kind of processor cannot, is built where PCP runs, if it can be there."""
    try:
        compiling.compile_library(
            library.source, library.name, library.source_digest, command, needs, include, folder
        )
    except (compiling.Refused, OSError, subprocess.SubprocessError) as error:
        print(
            f"{library.source.name} for {' '.join(needs) or 'any processor'} is left out of the wheel: {error}"
        )


class BdistWheel(bdist_wheel):
    def get_tag(self):
        """Libraries are for one platform, and for every Python."""
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", platform)


class Contents(Distribution):
    def has_ext_modules(self):
        """Whether what is installed depends on the platform."""
        return TOOLS is not None


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel}, distclass=Contents)
