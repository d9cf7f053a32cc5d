"""Which operation runs in which element type on which backend, each compared with StableHLO's interpreter.

    python -m benchmarks matrix > docs/reference/operations_by_backend.md
    python -m benchmarks matrix --operations tanh cbrt --places cpu:0 arena:cpu

Nearly all of its time is IREE's compiler's, which runs in as many processes as there are cores.
"""

import argparse
import json
import os
import random
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.backends.cells import TORCH, Cell, answers, every_cell, judged, references
from benchmarks.backends.operations import CASES, TYPES
from benchmarks.backends.page import page_of
from pcp import backends
from pcp.backends import UnknownBackend

PLACES = {
    "cpu:0": "XLA",
    "iree:llvm-cpu": "IREE, processor",
    "iree:vulkan": "IREE, Vulkan",
    "arena:cpu": "arena",
    "torch:cpu": "arena, torch",
}
"""The devices, and what their columns are called."""


def places_here() -> list[str]:
    """Those of `PLACES` that this machine has."""
    try:
        kinds = {device.kind for device in backends.devices("iree")}
    except UnknownBackend:
        kinds = set()
    here = [
        place for place in PLACES if not place.startswith("iree:") or place.removeprefix("iree:") in kinds
    ]
    return [place for place in here if place != TORCH or find_spec("torch")]


def matrix(names: list[str], places: list[str], seed: int) -> dict[str, dict[Cell, str]]:
    """For each place what is wrong with each cell, nothing where it is right; cells that nothing is known of are left out."""
    cells = every_cell(names, TYPES)
    expected = references(cells, seed)
    known = [cell for cell in cells if cell in expected]

    def column(place: str) -> dict[Cell, str]:
        made = answers(place, known, seed)
        return {cell: judged(cell, answer, expected[cell]) for cell, answer in zip(known, made, strict=True)}

    with TemporaryDirectory() as folder, patch.dict(os.environ, PCP_CACHE_DIR=folder):  # all is compiled anew
        return {place: column(place) for place in places}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "--operations", nargs="+", choices=list(CASES), metavar="NAME", help="some only; all if not given"
    )
    parser.add_argument(
        "--places", nargs="+", choices=list(PLACES), help="devices; all that are here if not given"
    )
    parser.add_argument("--seed", type=int, help="of the operands; another one each time if not given")


def run(arguments: argparse.Namespace) -> None:
    """Run every cell and print the page."""
    seed = random.randrange(2**31) if arguments.seed is None else arguments.seed
    places = arguments.places or places_here()
    made = matrix(arguments.operations or list(CASES), places, seed)
    if not arguments.json:
        print(page_of({PLACES[place]: column for place, column in made.items()}), end="")
        return
    for place, column in made.items():
        for (name, dtype), wrong in column.items():
            print(json.dumps({"operation": name, "type": str(dtype), "device": place, "wrong": wrong}))
