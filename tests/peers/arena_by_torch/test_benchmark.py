"""The benchmark of the arena's providers measures each beside the others."""

import argparse
import json

import pytest
from benchmarks.backends import providers

from pcp.ir import DType


def test_a_row_has_times_and_errors_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    types = [DType.f32, DType.bf16]
    providers.run(argparse.Namespace(operations=["small add"], types=types, calls=2, json=True))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["operation"], row["type"]) for row in rows] == [("small add", str(each)) for each in types]
    for row, near in zip(rows, (1e-6, 1e-2), strict=True):
        assert set(row["microseconds"]) == set(row["errors"]) == set(providers.PLACES)
        assert all(0 < row["least"][place] <= row["microseconds"][place] for place in providers.PLACES)
        assert max(row["errors"].values()) < near


def test_functions_of_floats_have_no_row_for_integers() -> None:
    assert providers.measured("tanh", DType.i32, 1) is None
