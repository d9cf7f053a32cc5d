"""A kernel from outside: a folder with a manifest, `kernel.toml`, and a python file or StableHLO text.

Reading it executes nothing. What it claims here is what it is judged by.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcp.ir import DType
from pcp.kernels.kernel import Claims
from pcp.kernels.manifest import (
    MANIFEST,
    NONFINITE,
    InvalidCandidate,
    entry_of,
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
    Problem,
    UnknownProblem,
    problem,
    problems_of,
    wide_problems_of,
)
from pcp.rewrite.row import Effect

DERIVED, REFERENCE = "derived", "reference"

_KEYS = (
    "name", "effect", "about", "entry", "version", "gradient", "deterministic", "tolerance", "conditions", "problem"
)  # fmt: skip
_CONDITIONS = ("dtypes", "forms", "sizes", "shapes", "nonfinite")
_LIMITS = ("multiple_of", "at_least", "at_most")
_PROBLEM = ("form", "dtype", "sizes")


@dataclass(frozen=True, slots=True)
class Limits:
    """Which values of a size a kernel is for."""

    multiple_of: int = 1
    at_least: int = 1
    at_most: int | None = None

    def allow(self, size: int) -> bool:
        """Whether a size is one of them."""
        return self.nearest(size) == size

    def nearest(self, size: int) -> int:
        """An allowed size near another."""
        size = max(size, self.at_least)
        size += -size % self.multiple_of
        if self.at_most is not None and size > self.at_most:
            size = self.at_most - self.at_most % self.multiple_of
        return size


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel from outside, as its manifest describes it.

    Arguments:
        folder: where it lies.
        name: its family and what is particular about it, `softmax.chunked`.
        effect: what it does to numbers, compared with the plain computation.
        about: one sentence for people.
        file: python or StableHLO text, in the folder.
        function: its name in a python file; None for StableHLO.
        gradient: `derived` by differentiating the kernel, `reference` if that of the plain computation is used, or file and
            function of its own.
        tolerance: the error that it claims not to exceed, by the element type of the operands.
        version: raised with every change of what it computes.
        dtypes: element types of floating-point operands that it is for.
        problems: what it is tried on; the last one is large, and its time is measured.
        nonfinite: what it returns where an operand has infinities or NaN; see `docs/outside/kernels_from_outside.md`.
        wide: problems of the sizes of models, the largest last; they are tried on few kinds of values.
        deterministic: whether it claims to return the same bits for the same operands; None where it says nothing.
        forms: that it is for.
        limits: of the sizes that it is for, by their names.
    """

    folder: Path
    name: str
    effect: Effect
    about: str
    file: str
    function: str | None
    gradient: str
    tolerance: Mapping[DType, float]
    version: int
    dtypes: tuple[DType, ...]
    problems: tuple[Problem, ...]
    nonfinite: str
    wide: tuple[Problem, ...] = ()
    deterministic: bool | None = None
    forms: tuple[str, ...] = ()
    limits: Mapping[str, Limits] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """What it computes."""
        return self.name.partition(".")[0]

    @property
    def claims(self) -> Claims:
        """What it is held to at a site."""
        return Claims(self.effect, self.nonfinite, is_added=True)


def read_candidate(folder: str | os.PathLike[str]) -> Candidate:
    """The kernel in a folder.

    Raises:
        InvalidCandidate: there is no manifest, a file is missing, or the manifest says something that is not understood.
    """
    place = Path(folder)
    manifest = read_manifest(place)
    try:
        return candidate_of(place, manifest)
    except (InvalidCandidate, UnknownProblem) as error:
        raise InvalidCandidate(f"{place / MANIFEST}: {error}") from None


def candidate_of(folder: Path, manifest: dict[str, Any]) -> Candidate:
    """The kernel that a manifest in a folder describes.

    Raises:
        InvalidCandidate, UnknownProblem: a file is missing, or the manifest says something that is not understood.
    """
    only_known("key", manifest, _KEYS)
    name = name_of(manifest, DEFINITIONS)
    family = name.partition(".")[0]
    effect = one_of("effect", text_of(manifest, "effect"), tuple(Effect))
    file, function = entry_of(folder, "entry", text_of(manifest, "entry"))
    gradient = str(manifest.get("gradient", DERIVED))
    if gradient not in (DERIVED, REFERENCE):
        if function is None or ":" not in gradient:
            raise InvalidCandidate(
                f"gradient = {gradient!r}; expected {DERIVED!r}, {REFERENCE!r}, or for a kernel in python a function, "
                "as 'kernel.py:gradient'"
            )
        entry_of(folder, "gradient", gradient)
    conditions = table_of(manifest, "conditions")
    only_known("condition", conditions, _CONDITIONS)
    dtypes = tuple(_dtype(each) for each in conditions.get("dtypes", ["f32"]))
    deterministic = manifest.get("deterministic")
    if deterministic not in (None, True, False):
        raise InvalidCandidate(f"deterministic = {deterministic!r}; expected true or false")
    problems, wide = _problems(family, manifest, conditions, dtypes, fixed=function is None)
    given = problems[0].form if function is None else None
    return Candidate(
        folder.resolve(),
        name,
        Effect(effect),
        text_of(manifest, "about"),
        file,
        function,
        gradient,
        {
            _dtype(key): positive(f"tolerance.{key}", value)
            for key, value in table_of(manifest, "tolerance").items()
        },
        version_of(manifest),
        dtypes,
        problems,
        one_of("conditions.nonfinite", conditions.get("nonfinite", NONFINITE[0]), NONFINITE),
        wide,
        deterministic,
        (given,) if given else tuple(conditions.get("forms", DEFINITIONS[family].forms)),
        {name: _limits(name, table) for name, table in table_of(conditions, "sizes").items()},
    )


def _problems(
    family: str, manifest: dict[str, Any], conditions: dict[str, Any], dtypes: Sequence[DType], fixed: bool
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """The standard problems, and the wide ones."""
    if fixed:
        given = table_of(manifest, "problem")
        if not given or conditions.keys() & {"dtypes", "forms", "sizes", "shapes"}:
            raise InvalidCandidate(
                "a kernel in StableHLO computes one problem: expected a table [problem] with form, dtype and sizes, and no "
                "conditions beside nonfinite"
            )
        only_known("key of [problem]", given, _PROBLEM)
        only = problem(family, given.get("form"), _dtype(given.get("dtype", "f32")), given.get("sizes", {}))
        return (only,), ()
    if "problem" in manifest:
        raise InvalidCandidate("[problem] is for kernels in StableHLO; a kernel in python has [conditions]")
    definition = DEFINITIONS[family]
    limits = {name: _limits(name, table) for name, table in table_of(conditions, "sizes").items()}
    only_known("size", limits, definition.sizes)
    forms = conditions.get("forms", list(definition.forms))

    def allowed(each: Problem) -> Problem:
        sizes = {name: limits.get(name, Limits()).nearest(size) for name, size in each.sizes}
        return problem(family, each.form, each.dtype, sizes)

    made: list[Problem] = []
    for dtype in dtypes:
        made += map(allowed, problems_of(family, forms, dtype))
        for shape in conditions.get("shapes", []):
            if not isinstance(shape, dict):
                raise InvalidCandidate(
                    f"conditions.shapes has {shape!r}; expected tables of sizes, as {{ {definition.sizes[0]} = 48 }}"
                )
            usual = dict(zip(definition.sizes, definition.standard[0], strict=True))
            usual = {name: limits.get(name, Limits()).nearest(size) for name, size in usual.items()}
            form = shape.get("form", forms[0])
            sizes = usual | {name: size for name, size in shape.items() if name != "form"}
            made.append(problem(family, form, dtype, sizes))
    large = dict(zip(definition.sizes, definition.large, strict=True))
    sizes = {name: limits.get(name, Limits()).nearest(size) for name, size in large.items()}
    made.append(problem(family, forms[0], dtypes[0], sizes))
    wide = dict.fromkeys(map(allowed, wide_problems_of(family, forms, dtypes[0])))
    return tuple(dict.fromkeys(made)), tuple(each for each in wide if each not in made)


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
