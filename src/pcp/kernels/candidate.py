"""A kernel from outside: a folder with a manifest, `kernel.toml`, and a file that computes what the manifest says.

It is for problems of a family, or for one region of a program, as `pcp kernels export` writes it: both are problems that it is
tried on. Reading it executes nothing. What it claims here is what it is judged by.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcp.ir import DType, InvalidProgram, Program
from pcp.kernels.cuda_source import Launch
from pcp.kernels.kernel import Claims
from pcp.kernels.manifest import (
    MANIFEST,
    NONFINITE,
    InvalidCandidate,
    entry_of,
    file_of,
    list_of,
    name_of,
    one_of,
    only_known,
    positive,
    read_manifest,
    table_of,
    text_of,
    version_of,
)
from pcp.kernels.problems import (
    DEFINITIONS,
    Limits,
    Problem,
    UnknownProblem,
    problem,
    problem_of,
    problems_of,
    wide_problems_of,
)
from pcp.kernels.registry import FAMILIES
from pcp.rewrite.row import Effect

DERIVED, REFERENCE = "derived", "reference"

LANGUAGES = {".mlir": ("stablehlo",), ".py": ("jax", "pallas", "triton"), ".cc": ("cpp",), ".cu": ("cuda",)}
"""What a file may be written in, by the end of its name; the first is meant where nothing is said."""
NATIVE = ("cpp", "cuda", "triton")
"""Languages whose kernels are machine code in the processes that run them."""

CAPABILITIES = (80, 86, 89, 90)
"""Of GPUs, that kernels in Triton are compiled for: what is for 80 runs on all later ones, what is for 90 on no other."""

MOST_ELEMENTS = 1 << 28
"""Of the operands of a problem that a kernel may be tried on."""

UNCLAIMED = 0.1
"""The largest error of a kernel for a family that claims no tolerance: one that is even is no mistake."""

DEVICES = ("cpu", "cuda")
GPU_CODE = ("mosaic_gpu_v2", "__gpu$xla.gpu.triton")
"""What a Pallas kernel for a GPU calls: compilers of XLA's own, with the kernel as an attribute."""

_KEYS = ("name", "effect", "about", "entry", "version", "tolerance")
_OF_REGION = (*_KEYS, "region", "language", "device", "nonfinite", "launch", "capability")
_OF_FAMILY = (*_KEYS, "gradient", "deterministic", "conditions", "problem")
_CONDITIONS = ("dtypes", "forms", "sizes", "shapes", "nonfinite")
_LIMITS = ("multiple_of", "at_least", "at_most")
_PROBLEM = ("form", "dtype", "sizes")
_ENTRY = re.compile(
    r"[\w./-]+\.py:[A-Za-z_]\w*|[\w./-]+\.cc:[a-z][a-z0-9_]*|[\w./-]+\.cu:[A-Za-z_]\w*|[\w./-]+\.mlir"
)
_EXPECTED = "'FILE.py:FUNCTION', 'FILE.cc:HANDLER', 'FILE.cu:KERNEL' or 'FILE.mlir'"


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A kernel from outside, as its manifest describes it.

    Arguments:
        folder: where it lies.
        name: its family and what is particular about it, `softmax.chunked`.
        effect: what it does to numbers, compared with the plain computation.
        about: one sentence for people.
        file: in the folder.
        function: its name in the file; None for StableHLO.
        problems: what it is tried on: one for a region, or its family's, of which the last is large, and is timed.
        nonfinite: what it returns where an operand has infinities or NaN; see `docs/outside/kernels_from_outside.md`.
        tolerance: the error that it claims not to exceed, by the element type of the operands.
        version: raised with every change of what it computes.
        language: that its file is written in, of `LANGUAGES`.
        device: the kind of device that it is for; kernels of StableHLO and JAX may stand on any.
        launch: of CUDA, how the kernel is launched.
        capability: of Triton, for GPUs of which compute capability it is compiled, of `CAPABILITIES`.
        gradient: `derived` by differentiating the kernel, `reference` if the plain computation's is used, or file and
            function of its own.
        wide: problems of the sizes of models, the largest last; they are tried on few kinds of values.
        deterministic: whether it claims to return the same bits for the same operands; None where it says nothing.
        dtypes: element types of floating-point operands that it is for.
        forms: of the family, that it is for.
        limits: of the sizes that it is for, by their names.
    """

    folder: Path
    name: str
    effect: Effect
    about: str
    file: str
    function: str | None
    problems: tuple[Problem, ...]
    nonfinite: str
    tolerance: Mapping[DType, float]
    version: int
    language: str
    device: str = DEVICES[0]
    launch: Launch | None = None
    capability: int = CAPABILITIES[0]
    gradient: str = REFERENCE
    wide: tuple[Problem, ...] = ()
    deterministic: bool | None = None
    dtypes: tuple[DType, ...] = ()
    forms: tuple[str, ...] = ()
    limits: Mapping[str, Limits] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """What it computes."""
        return self.name.partition(".")[0]

    def called(self, digest: str) -> str:
        """What plans and paths call it: its own name, and the digest of its content."""
        return f"{self.name}#{digest[:32]}"

    @property
    def claims(self) -> Claims:
        """What it is held to where it is verified."""
        return Claims(self.effect, self.nonfinite, is_added=True, deterministic=self.deterministic)

    @property
    def region(self) -> Program | None:
        """The region that it is for, alone; None where it is for problems of its family."""
        return self.problems[0].region

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

    def claimed(self, posed: Problem) -> float | None:
        """The error that it claims not to exceed for a problem; None where it is held to another order of sums."""
        is_held = self.region is not None or self.effect is not Effect.lowers_precision
        return self.tolerance.get(posed.dtype, None if is_held else UNCLAIMED)

    def is_for(self, posed: Problem) -> bool:
        """Whether it computes a problem."""
        if self.function is None or self.region is not None:
            return posed == self.problems[0]
        return (
            posed.dtype in self.dtypes
            and posed.form in self.forms
            and all(self.limits.get(name, Limits()).allow(size) for name, size in posed.sizes)
        )


def read_candidate(folder: str | os.PathLike[str]) -> Candidate:
    """The kernel in a folder: for one region, if its manifest names one, else for the problems of a family.

    Raises:
        InvalidCandidate: there is no manifest, a file is missing, or the manifest says something that is not understood.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    try:
        return (_for_region if "region" in manifest else _for_family)(place, manifest)
    except (InvalidCandidate, UnknownProblem) as error:
        raise InvalidCandidate(f"{place / MANIFEST}: {error}") from None


def _common(
    folder: Path, manifest: Mapping[str, Any], families: Sequence[str], *entry: Any
) -> dict[str, Any]:
    """What every manifest says; a family or a region says more."""
    name = name_of(manifest, families)
    effect = Effect(one_of("effect", text_of(manifest, "effect"), tuple(Effect)))
    file, function = entry_of(folder, "entry", text_of(manifest, "entry"), *entry)
    return {
        "folder": folder.resolve(),
        "name": name,
        "effect": effect,
        "about": text_of(manifest, "about"),
        "file": file,
        "function": function,
        "version": version_of(manifest),
    }


def _for_region(folder: Path, manifest: Mapping[str, Any]) -> Candidate:
    only_known("key", manifest, _OF_REGION)
    common = _common(folder, manifest, list(FAMILIES), _ENTRY, _EXPECTED)
    languages = LANGUAGES[Path(common["file"]).suffix]
    language = one_of("language", manifest.get("language", languages[0]), languages)
    devices = {"cpp": ("cpu",), "cuda": ("cuda",), "triton": ("cuda",)}.get(language, DEVICES)
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
    family = common["name"].partition(".")[0]
    posed = problem_of(family, _region(folder, text_of(manifest, "region")))
    claimed = manifest.get("tolerance")
    return Candidate(
        **common,
        problems=(posed,),
        nonfinite=one_of("nonfinite", manifest.get("nonfinite", "nan"), NONFINITE),
        tolerance={} if claimed is None else {posed.dtype: positive("tolerance", claimed)},
        language=language,
        device=one_of("device", manifest.get("device", devices[0]), devices),
        launch=_launch(table_of(manifest, "launch")) if language == "cuda" else None,
        capability=capability,
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


def _for_family(folder: Path, manifest: Mapping[str, Any]) -> Candidate:
    only_known("key", manifest, _OF_FAMILY)
    common = _common(folder, manifest, list(DEFINITIONS))
    is_text = common["function"] is None
    gradient = str(manifest.get("gradient", DERIVED))
    if gradient not in (DERIVED, REFERENCE):
        if is_text or ":" not in gradient:
            raise InvalidCandidate(
                f"gradient = {gradient!r}; expected {DERIVED!r}, {REFERENCE!r}, or for a kernel in python a function, "
                "as 'kernel.py:gradient'"
            )
        entry_of(folder, "gradient", gradient)
    conditions = table_of(manifest, "conditions")
    only_known("condition", conditions, _CONDITIONS)
    dtypes = tuple(map(_dtype, _words("dtypes", conditions, ["f32"])))
    deterministic = manifest.get("deterministic")
    if deterministic is not None and not isinstance(deterministic, bool):
        raise InvalidCandidate(f"deterministic = {deterministic!r}; expected true or false")
    family = common["name"].partition(".")[0]
    limits = {name: _limits(name, table) for name, table in table_of(conditions, "sizes").items()}
    problems, wide = (
        ((_only(family, manifest, conditions),), ())
        if is_text
        else _problems(family, manifest, conditions, dtypes, limits)
    )
    largest = max((*problems, *wide), key=lambda each: each.size)
    if largest.size > MOST_ELEMENTS:
        raise InvalidCandidate(
            f"{largest} has {largest.size} elements, which would not fit in memory; expected sizes of at most {MOST_ELEMENTS}"
        )
    tolerance = table_of(manifest, "tolerance")
    return Candidate(
        **common,
        problems=problems,
        nonfinite=one_of("conditions.nonfinite", conditions.get("nonfinite", NONFINITE[0]), NONFINITE),
        tolerance={_dtype(key): positive(f"tolerance.{key}", value) for key, value in tolerance.items()},
        language=LANGUAGES[Path(common["file"]).suffix][0],
        gradient=gradient,
        wide=wide,
        deterministic=deterministic,
        dtypes=dtypes,
        forms=tuple(_words("forms", conditions, list(DEFINITIONS[family].forms))),
        limits=limits,
    )


def _only(family: str, manifest: Mapping[str, Any], conditions: Mapping[str, Any]) -> Problem:
    """The problem that StableHLO text computes."""
    table = table_of(manifest, "problem")
    if not table or conditions.keys() & {"dtypes", "forms", "sizes", "shapes"}:
        raise InvalidCandidate(
            "a kernel in StableHLO computes one problem: expected a table [problem] with form, dtype and sizes, and no "
            "conditions beside nonfinite"
        )
    only_known("key of [problem]", table, _PROBLEM)
    return problem(family, table.get("form"), _dtype(table.get("dtype", "f32")), table_of(table, "sizes"))


def _problems(
    family: str,
    manifest: Mapping[str, Any],
    conditions: Mapping[str, Any],
    dtypes: Sequence[DType],
    limits: Mapping[str, Limits],
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """The problems that conditions allow: the standard ones and ones of stated shapes, and the wide ones."""
    if "problem" in manifest:
        raise InvalidCandidate("[problem] is for kernels in StableHLO; a kernel in python has [conditions]")
    definition = DEFINITIONS[family]
    only_known("size", limits, definition.sizes)
    forms = _words("forms", conditions, list(definition.forms))
    example = f"tables of sizes, as {{ {definition.sizes[0]} = 48 }}"

    def nearest(sizes: Mapping[str, int]) -> dict[str, int]:
        return {name: limits.get(name, Limits()).nearest(size) for name, size in sizes.items()}

    def allowed(each: Problem) -> Problem:
        return problem(family, each.form, each.dtype, nearest(dict(each.sizes)))

    problems: list[Problem] = []
    for dtype in dtypes:
        problems += map(allowed, problems_of(family, forms, dtype))
        for shape in list_of("conditions.shapes", conditions.get("shapes", []), object, example):
            if not isinstance(shape, dict):
                raise InvalidCandidate(f"conditions.shapes has {shape!r}; expected {example}")
            usual = nearest(dict(zip(definition.sizes, definition.standard[0], strict=True)))
            sizes: dict[str, Any] = usual | shape
            problems.append(problem(family, sizes.pop("form", forms[0]), dtype, sizes))
    problems.append(allowed(problem(family, forms[0], dtypes[0])))
    wide = dict.fromkeys(map(allowed, wide_problems_of(family, forms, dtypes[0])))
    return tuple(dict.fromkeys(problems)), tuple(each for each in wide if each not in problems)


def _words(key: str, conditions: Mapping[str, Any], usual: list[str]) -> list[str]:
    """One or more words."""
    words = list_of(f"conditions.{key}", conditions.get(key, usual), str, f"texts, as {usual!r}")
    if not words:
        raise InvalidCandidate(f"conditions.{key} = []; expected one at least, as {usual!r}")
    return words


def _limits(name: str, table: Any) -> Limits:
    if not isinstance(table, dict):
        raise InvalidCandidate(
            f"conditions.sizes.{name} = {table!r}; expected a table with {', '.join(_LIMITS)}"
        )
    only_known(f"limit of size {name!r}", table, _LIMITS)
    for key, value in table.items():
        if type(value) is not int or value < 1:
            raise InvalidCandidate(f"conditions.sizes.{name}.{key} = {value!r}; expected a positive integer")
    limits = Limits(**table)
    if limits.nearest(1) < limits.at_least or limits.nearest(1) < 1:
        raise InvalidCandidate(f"conditions.sizes.{name} = {table} does not allow any size")
    return limits


def _dtype(value: Any) -> DType:
    if not isinstance(value, str) or value not in DType.__members__ or not DType(value).is_float:
        raise InvalidCandidate(
            f"{value!r} is not a floating-point element type; expected bf16, f16, f32 or f64"
        )
    return DType(value)
