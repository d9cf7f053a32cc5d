"""A request travels whole to the process that measures: every field, whatever it holds."""

import os
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import pcp
from pcp.backends import Placement, Target, register_backend, registry
from pcp.ir import DType
from pcp.kernels import Claims
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import PythonFunction, Request, decoded, encoded
from pcp.rewrite.row import Effect

PROGRAM, OTHER, THIRD = (
    pcp.trace(lambda x, times=times: pcp.tanh(x) * times, pcp.spec((4, 8), "f32"))
    for times in (1.0, 2.0, 3.0)
)
EVERYTHING: dict[str, Any] = {
    "subject": PROGRAM,
    "candidate": OTHER,
    "path": "k@1 at its site",
    "exact": THIRD,
    "inputs": Recipe(7, 3, (("x", 0, 0.1), ("i", 1, 5)), 2),
    "target": Target.of("cpu:0", {"xla_backend_optimization_level": 1}),
    "tolerance": 1e-2,
    "judged_at": 0.1 + 0.2,
    "ignored": (1, 3),
    "calls": 3,
    "timing_seconds": 0.5,
    "rival": float("inf"),
    "site": Claims(Effect.reassociating, "spreads", 7, True),
    "worth": 1.1,
    "residuals": PROGRAM,
    "options": (("xla_backend_optimization_level", 2),),
    "elsewhere": Target.of("arena:cpu"),
    "placement": Placement((("a", "arena:cpu:0"),), ("arena:cpu:0", 1 << 40)),
    "bound": (0, 2),
    "subject_bound": (1,),
    "retyped": {0: DType.bf16},
    "sketched": len,
}


def test_every_field_travels(tmp_path: Path) -> None:
    assert list(EVERYTHING) == [field.name for field in fields(Request)]
    told: list[bytes] = []
    raw = encoded(Request(**EVERYTHING), tmp_path)
    found = decoded(raw, told.append)
    for name, value in EVERYTHING.items():
        assert getattr(found, name) == (told.append if name == "sketched" else value), name
    assert [program.bytecode for program in (found.subject, found.candidate)] == [
        PROGRAM.bytecode,
        OTHER.bytecode,
    ]
    assert len(list(tmp_path.iterdir())) == 3, "each program is written once"
    assert len(raw) < 2000, "and not sent"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"candidate": PythonFunction("kernel.py", "kernel")},
        {"inputs": [["a.npy", "b.npy"]]},
        {"inputs": [["a.npy"], ["b.npy"]], "rival": None, "ignored": ()},
        {"target": Target.of("cpu:0").with_options({})},
    ],
)
def test_what_is_not_given_stays_so(given: dict[str, Any], tmp_path: Path) -> None:
    asked = Request(**{"subject": PROGRAM, "candidate": PROGRAM, "path": "plain"} | given)
    found = decoded(encoded(asked, tmp_path), print)
    assert all(getattr(found, field.name) == getattr(asked, field.name) for field in fields(Request))
    assert found.sketched is None


def test_a_file_of_python_is_found_from_any_folder() -> None:
    assert PythonFunction("kernel.py", "kernel").file == os.path.abspath("kernel.py")


def test_a_backend_that_is_not_of_pcp_travels_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOCATIONS", dict(registry._LOCATIONS))
    register_backend("eager", "tests.backends.eager:EagerBackend")
    target = Target.of("eager:cpu")
    for each in (target, Placement((("a", "eager:cpu"),))):
        raw = pickle.dumps(each)
        assert b"tests.backends.eager:EagerBackend" in raw
        assert pickle.loads(raw) == each
