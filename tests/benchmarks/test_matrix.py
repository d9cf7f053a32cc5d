"""The page of operations by backend is true of a random sample of its cells, and names every operation that computes."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
from benchmarks.backends.ahead import refusals
from benchmarks.backends.cells import Answer, Cell, every_cell, judged, references, result_of
from benchmarks.backends.matrix import PLACES, matrix, places_here
from benchmarks.backends.operations import CASES, TYPES
from benchmarks.backends.page import page_of, said_by

from pcp.ir import DType
from pcp.ops.record import RECORDS, Kind

PAGE = Path(__file__).parents[2] / "docs/reference/operations_by_backend.md"
SAID = said_by(PAGE.read_text())
COMPUTING = {
    Kind.elementwise, Kind.movement, Kind.creation, Kind.reduction, Kind.product, Kind.solver, Kind.control,
}  # fmt: skip
AS_USERS = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}
"""Options of XLA on a processor: the suite has it compile quickly, which it cannot do with some cells."""
if "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", ""):
    AS_USERS["xla_cpu_use_fusion_emitters"] = True
SELDOM_WRONG = {("cpu:0", ("batch_norm_training", DType.f16))}
"""Cells that are right on most operands, and miss what is asked for by little on one list of eight or so."""
NOT_COMPUTED = {"rng", "rng_bit_generator", "chlo.constant"}
"""Drawn from a generator of the machine's own; and a constant, of which there is a row."""


def is_by_chance(place: str, cell: Cell) -> bool:
    """Whether it depends on operands that a cell is wrong: IREE's Vulkan takes for 0 what is behind the last 32-bit word."""
    program = CASES[cell[0]].program(cell[1])
    assert program is not None
    entries = (*program.arguments, *program.results)
    return place == "iree:vulkan" and any(entry.spec.bytes % 4 for entry in entries)


def test_the_page_has_every_cell() -> None:
    assert set(SAID) == set(PLACES.values())
    known = set(every_cell(CASES, TYPES))
    for column in SAID.values():
        assert set(column) <= known
        assert {name for name, _ in column} == set(CASES)
    computing = {r.name.removeprefix("stablehlo.") for r in RECORDS.values() if r.kind in COMPUTING}
    assert {name.partition(" ")[0].rstrip(",") for name in CASES} >= computing - NOT_COMPUTED


@pytest.mark.parametrize("place", PLACES)
def test_a_sample_of_cells_is_as_the_page_says(place: str) -> None:
    if place.startswith("iree:"):
        pytest.importorskip("iree.runtime")
        pytest.importorskip("iree.compiler")
    if place not in places_here():
        pytest.skip(f"{place} is not here")
    seed = random.randrange(2**31)
    said = SAID[PLACES[place]]
    known = (cell for cell in sorted(said) if (place, cell) not in SELDOM_WRONG)
    sure = [cell for cell in known if said[cell] or not is_by_chance(place, cell)]
    cells = random.Random(seed).sample(sure, 4 if place.startswith("iree:") else 12)
    expected = references(cells, seed, result_of)
    for cell in cells:
        wrong = judged(cell, on(place, cell, seed), expected[cell])
        assert (wrong == "") == said[cell], f"{cell} by {place} with seed {seed}: {wrong or 'right'}"


@pytest.mark.parametrize(
    "cell", [("maximum", DType.c64), ("clamp", DType.bool), ("reduce to the largest", DType.c128)]
)
def test_cells_that_only_a_compiler_that_optimises_has_are_as_the_page_says(cell: Cell) -> None:
    """They stand for nine of some thousand, of which a sample holds one seldom."""
    assert SAID[PLACES["cpu:0"]][cell] == (
        judged(cell, on("cpu:0", cell, 5), references([cell], 5, result_of)[cell]) == ""
    )


def on(place: str, cell: Cell, seed: int) -> Answer:
    """What a place makes of a cell, compiled as users have it compiled."""
    return result_of(place, *cell, seed, options=AS_USERS if place == "cpu:0" else {})


def test_iree_compiles_cells_before_any_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = pytest.importorskip("iree.compiler.tools")
    pytest.importorskip("iree.runtime")
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    taken, refused = ("add", DType.f32), ("cbrt", DType.f64)
    said = refusals("iree:llvm-cpu", [taken, refused])
    assert list(said) == [refused]
    assert said[refused] == result_of("iree:llvm-cpu", *refused, 1).refusal  # by its compiler, alone
    monkeypatch.setattr(tools, "compile_str", None)
    answer = result_of("iree:llvm-cpu", *taken, 1, cache=True)
    assert judged(taken, answer, references([taken], 1, result_of)[taken]) == ""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", PLACES)
def test_every_cell_is_as_the_page_says(place: str) -> None:
    if place not in places_here():
        pytest.skip(f"{place} is not here")
    made, said = matrix(list(CASES), [place], random.randrange(2**31))[place], SAID[PLACES[place]]
    assert set(made) == set(said)
    differing = {
        cell: wrong
        for cell, wrong in made.items()
        if (wrong == "") != said[cell] and (place, cell) not in SELDOM_WRONG
        if said[cell] or not is_by_chance(place, cell)
    }
    assert differing == {}


@pytest.mark.parametrize(
    ("dtype", "made", "expected", "wrong"),
    [
        ("f32", [1.0, 2.0], [1.0, 2.0], ""),
        ("f32", [1.0, 2.001], [1.0, 2.0], "wrong: an error of 5e-04"),
        ("bf16", [1.0, 2.001], [1.0, 2.0], ""),
        ("f64", [np.nan, 1.0], [np.nan, 1.0], ""),
        ("f64", [1.0, 1.0], [np.nan, 1.0], "wrong: an error of inf"),
        ("f64", [np.inf, 1.0], [-np.inf, 1.0], "wrong: an error of inf"),
        ("i32", [1, 2], [1, 3], "wrong: other numbers"),
    ],
)
def test_a_cell_is_judged_in_its_own_type(
    dtype: str, made: list[float], expected: list[float], wrong: str
) -> None:
    kind = DType(dtype)
    arrays = [np.array(values, kind.numpy) for values in (made, expected)]
    assert judged(("add", kind), Answer(arrays[0]), arrays[1]) == wrong


def test_a_page_says_what_it_was_written_from() -> None:
    cells: dict[Cell, str] = {("tanh", dtype): "" for dtype in TYPES[-6:]} | {("sort", DType.i8): ""}
    broken = cells | {("tanh", DType.f64): "wrong: an error of 3e-01", ("sort", DType.i8): "it has no sort"}
    page = page_of({"one": cells, "two": broken})
    assert said_by(page) == {
        "one": dict.fromkeys(cells, True),
        "two": {cell: not wrong for cell, wrong in broken.items()},
    }
    assert "| right | | 7 of 7 | 5 of 7 |" in page
    assert "1. wrong numbers\n2. it has no sort\n" in page
