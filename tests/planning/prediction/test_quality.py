"""What was measured of regions predicts the times of others, better than shapes and element types alone do.

`regions.jsonl.gz` was measured on two cores of a Xeon processor by `python -m benchmarks prediction --measure 1200`, while the
machine did other work, too; of each row a few calls are kept.
"""

import base64
import gzip
import json
import zlib
from pathlib import Path as FilePath

import pytest
from benchmarks.planning.prediction_quality import quality_of

import pcp
from pcp.ir import Program
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.prediction.model import CostModel, known_here
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.rows import Region

STORED = FilePath(__file__).with_name("regions.jsonl.gz")


@pytest.fixture
def database(tmp_path: FilePath) -> ProfileDatabase:
    """The stored rows; digests are those of today, and fields that a Measurement got since then stand at their defaults."""
    found = [json.loads(line) for line in gzip.decompress(STORED.read_bytes()).splitlines()]
    packed = {each["region"]["digest"]: each["region"]["program"] for each in found if "region" in each}
    programs = {
        digest: Program.parse(zlib.decompress(base64.b64decode(text)).decode())
        for digest, text in packed.items()
    }
    rows: list[Measurement | Region] = [
        region for program in programs.values() if (region := Region.of(program)) is not None
    ]
    for each in found:
        if "measurement" in each:
            fields = each["measurement"]
            times = {name: tuple(fields[name]) for name in ("seconds", "plain_seconds")}
            rows.append(Measurement(**fields | times | {"subject": programs[fields["subject"]].digest}))
    made = ProfileDatabase(tmp_path / "profile.sqlite")
    made.add_all(rows)
    return made


def test_stored_regions_predict_others_better_than_the_analytic_model(database: ProfileDatabase) -> None:
    some = database.measurements()[0]
    found = quality_of(database, some.hardware, some.versions)
    for what, most in (("ratios", 1.25), ("seconds", 1.5)):
        learnt, analytic = found[f"{what}, learnt"], found[f"{what}, analytic"]
        assert learnt.count == analytic.count > 100
        assert learnt.rank_correlation > max(0.8, analytic.rank_correlation)
        assert learnt.median_factor < min(most, analytic.median_factor)
        assert learnt.within_2 > max(0.85, analytic.within_2)


def test_an_error_that_is_predicted_grows_with_the_root_of_what_is_summed_up(
    database: ProfileDatabase,
) -> None:
    some = database.measurements()[0]
    model = CostModel(lambda family: known_here(database, some.hardware, some.versions, family))

    def error(depth: int) -> float:
        program = pcp.trace(lambda x, w: x @ w, pcp.spec((64, depth), "f32"), pcp.spec((depth, 64), "f32"))
        forecast = model.forecast(program, "product.xla:bf16@1")
        assert forecast is not None
        assert forecast.error is not None
        return forecast.error

    measured = max(row.error or 0.0 for row in database.measurements(path="product.xla:bf16@1"))
    assert error(1024) >= measured
    assert error(1 << 20) == pytest.approx(4 * error(1 << 16), rel=1e-3)
    assert model.forecast(pcp.trace(lambda x: x @ x, pcp.spec((8, 8), "f32")), "product.unknown@1") is None
