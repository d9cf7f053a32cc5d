"""A kernel from outside for one region: what stands at a site, with its very shapes, from `pcp kernels export`.

Its manifest names the region as a file of StableHLO, and a file that computes the same: StableHLO text, python of JAX arrays,
or native code. Reading it executes nothing.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.ir import InvalidProgram, Program
from pcp.kernels.candidate import Candidate, candidate_of
from pcp.kernels.cuda_source import Launch
from pcp.kernels.kernel import Claims
from pcp.kernels.manifest import (
    MANIFEST,
    NONFINITE,
    InvalidCandidate,
    entry_of,
    file_of,
    name_of,
    one_of,
    only_known,
    positive,
    read_manifest,
    table_of,
    text_of,
    version_of,
)
from pcp.kernels.problems import UnknownProblem
from pcp.kernels.registry import FAMILIES
from pcp.rewrite.row import Effect

LANGUAGES = {".mlir": ("stablehlo",), ".py": ("jax", "pallas", "triton"), ".cc": ("cpp",), ".cu": ("cuda",)}
"""What a file may be written in, by the end of its name; the first is meant where nothing is said."""
NATIVE = ("cpp", "cuda", "triton")
"""Languages whose kernels are machine code in the processes that run them."""

CAPABILITIES = (80, 86, 89, 90)
"""Of GPUs, that kernels in Triton are compiled for: what is for 80 runs on all later ones, what is for 90 on no other."""

DEVICES = ("cpu", "cuda")
GPU_CODE = ("mosaic_gpu_v2", "__gpu$xla.gpu.triton")
"""What a Pallas kernel for a GPU calls: compilers of XLA's own, with the kernel as an attribute."""

_KEYS = (
    "name", "effect", "about", "entry", "region", "language", "device", "version", "tolerance", "nonfinite", "launch",
    "capability",
)  # fmt: skip
_ENTRY = re.compile(
    r"[\w./-]+\.py:[A-Za-z_]\w*|[\w./-]+\.cc:[a-z][a-z0-9_]*|[\w./-]+\.cu:[A-Za-z_]\w*|[\w./-]+\.mlir"
)
_EXPECTED = "'FILE.py:FUNCTION', 'FILE.cc:HANDLER', 'FILE.cu:KERNEL' or 'FILE.mlir'"


@dataclass(frozen=True, slots=True, eq=False)
class RegionCandidate:
    """A kernel from outside for one region, as its manifest describes it.

    Arguments:
        folder: where it lies.
        name: its family and what is particular about it, `softmax.mine`.
        effect: what it does to numbers, compared with the region itself.
        about: one sentence for people.
        region: what it computes, alone.
        language: that its file is written in, of `LANGUAGES`.
        device: the kind of device that it is for; kernels of StableHLO and JAX may stand on any.
        file: in the folder.
        function: its name in the file; None for StableHLO.
        tolerance: the error that it claims not to exceed; None claims what another order of sums explains.
        version: raised with every change of what it computes.
        nonfinite: what it returns where an operand has infinities or NaN; see `docs/outside/kernels_from_outside.md`.
        launch: of CUDA, how the kernel is launched.
        capability: of Triton, for GPUs of which compute capability it is compiled, of `CAPABILITIES`.
    """

    folder: Path
    name: str
    effect: Effect
    about: str
    region: Program
    language: str
    device: str
    file: str
    function: str | None
    tolerance: float | None
    version: int
    nonfinite: str
    launch: Launch | None = None
    capability: int = CAPABILITIES[0]

    @property
    def family(self) -> str:
        """What it computes."""
        return self.name.partition(".")[0]

    @property
    def claims(self) -> Claims:
        """What it is held to where it is verified."""
        return Claims(self.effect, self.nonfinite, is_added=True)

    @property
    def is_native(self) -> bool:
        """Whether it is machine code in the processes that run it."""
        return self.language in NATIVE or (self.language == "pallas" and self.device != "cpu")

    @property
    def needs(self) -> tuple[str, ...]:
        """Features of a machine that it needs."""
        if self.language in ("cuda", "triton"):
            return (self.device, f"sm_{self.capability}")
        return (self.device,) if self.language in ("pallas", *NATIVE) else ()

    @property
    def calls(self) -> tuple[str, ...]:
        """What its program may call."""
        return GPU_CODE if self.language == "pallas" and self.device != "cpu" else ()


def read_kernel(folder: str | os.PathLike[str]) -> Candidate | RegionCandidate:
    """The kernel in a folder: for one region, if its manifest names one, else for the problems of a family.

    Raises:
        InvalidCandidate: there is no manifest, a file is missing, or the manifest says something that is not understood.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    try:
        return _region_candidate(place, manifest) if "region" in manifest else candidate_of(place, manifest)
    except (InvalidCandidate, UnknownProblem) as error:
        raise InvalidCandidate(f"{place / MANIFEST}: {error}") from None


def _region_candidate(folder: Path, manifest: Mapping[str, Any]) -> RegionCandidate:
    only_known("key", manifest, _KEYS)
    file, function = entry_of(folder, "entry", text_of(manifest, "entry"), _ENTRY, _EXPECTED)
    languages = LANGUAGES[Path(file).suffix]
    language = one_of("language", manifest.get("language", languages[0]), languages)
    devices = {"cpp": ("cpu",), "cuda": ("cuda",), "triton": ("cuda",)}.get(language, DEVICES)
    tolerance = manifest.get("tolerance")
    if ("launch" in manifest) != (language == "cuda"):
        raise InvalidCandidate(
            "a kernel in CUDA, and no other, has a table [launch] with grid and block, such as grid = [625, 1, 1]"
        )
    capability = manifest.get("capability", CAPABILITIES[0])
    if "capability" in manifest and (
        language != "triton" or type(capability) is not int or capability not in CAPABILITIES
    ):
        raise InvalidCandidate(
            f"capability = {capability!r}; expected one of {', '.join(map(str, CAPABILITIES))}, for a kernel in Triton only"
        )
    return RegionCandidate(
        folder.resolve(),
        name_of(manifest, FAMILIES),
        Effect(one_of("effect", text_of(manifest, "effect"), tuple(Effect))),
        text_of(manifest, "about"),
        _region(folder, text_of(manifest, "region")),
        language,
        one_of("device", manifest.get("device", devices[0]), devices),
        file,
        function,
        None if tolerance is None else positive("tolerance", tolerance),
        version_of(manifest),
        one_of("nonfinite", manifest.get("nonfinite", "nan"), NONFINITE),
        _launch(table_of(manifest, "launch")) if language == "cuda" else None,
        capability,
    )


def _launch(table: Mapping[str, Any]) -> Launch:
    only_known("key of [launch]", table, ("grid", "block", "shared_bytes"))
    for key in ("grid", "block"):
        sizes = table.get(key)
        if not isinstance(sizes, list) or len(sizes) != 3 or any(type(n) is not int or n < 1 for n in sizes):
            raise InvalidCandidate(f"launch.{key} = {sizes!r}; expected three positive integers")
    shared = table.get("shared_bytes", 0)
    if type(shared) is not int or shared < 0:
        raise InvalidCandidate(f"launch.shared_bytes = {shared!r}; expected a number of bytes")
    return Launch(tuple(table["grid"]), tuple(table["block"]), shared)


def _region(folder: Path, name: str) -> Program:
    place = folder / file_of(folder, "region", name, name)
    try:
        return Program.parse(place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, InvalidProgram) as error:
        raise InvalidCandidate(
            f"region = {name!r} is no program: {str(error)[:200]}; take the file that `pcp kernels export` wrote"
        ) from None
