"""Rows survive other processes, kill -9, exports and merges; what is damaged, locked or foreign is said."""

import contextlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path as FilePath
from typing import Any

import pytest

import pcp
from pcp.ir import Program
from pcp.planning.measuring.hardware import Hardware
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.measurement_text import InvalidRows
from pcp.planning.paths.kinds import KERNEL
from pcp.planning.paths.kinds.kernels import Choice
from pcp.planning.paths.path import Path
from pcp.planning.profile.best_effort_database import BestEffortDatabase
from pcp.planning.profile.database import DatabaseUnusable, NothingToPrune, ProfileDatabase
from pcp.planning.profile.rows import Region, line_of

HERE, THERE = Hardware("EPYC, 2 cores", "flags: avx512_bf16"), Hardware("Xeon, 8 cores", "flags: amx")
SUBJECT, OTHER = "a" * 64, "b" * 64
PATH = Path(SUBJECT, (KERNEL.move(Choice("product.xla:bf16", 1), "c" * 64),))


def row(path: str = "plain", **changes: Any) -> Measurement:
    given: dict[str, Any] = {
        "subject": SUBJECT, "path": path, "hardware": HERE.digest, "versions": "jaxlib 1", "seconds": (0.1, 0.3, 0.2),
        "plain_seconds": (0.4, 0.5), "error": 1.5e-3, "plain_error": 1e-7, "peak_bytes": 1 << 33, "when": 1000.5,
    }  # fmt: skip
    return Measurement(**given | changes)


@pytest.fixture
def database(tmp_path: FilePath) -> ProfileDatabase:
    return ProfileDatabase(tmp_path / "folder" / "profile.sqlite", busy_seconds=10)


def test_rows_come_back_as_they_were(database: ProfileDatabase) -> None:
    assert database.measurements() == []
    assert not database.file.exists()
    rows = [
        row(PATH.digest),
        row(
            "product.bad@1", seconds=(), error=math.inf, failure=Failure.crash, detail="SIGABRT", when=1001.0
        ),
        row(subject=OTHER, error=None, plain_error=None, peak_bytes=None, when=1002.0),
    ]
    database.add(rows[0], path=PATH, hardware=HERE, about="dot_general f32[2,2]")
    database.add(rows[0], path=PATH)
    assert [database.add_all([each]) for each in rows] == [0, 1, 1]
    assert database.measurements() == rows
    assert database.measurements(SUBJECT) == rows[:2]
    assert database.measurements(path="product.bad@1", hardware=HERE.digest, versions="jaxlib 1") == rows[1:2]
    assert database.measurements(hardware=THERE.digest) == []
    assert database.path_of(PATH.digest) == PATH
    assert database.path_of("0" * 64) is None
    assert database.hardware() == {HERE.digest: HERE}
    assert database.subjects() == {SUBJECT: "dot_general f32[2,2]", OTHER: ""}


def test_the_default_file_is_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> None:
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    assert ProfileDatabase().file == tmp_path / "profile.sqlite"


def test_other_hardware_orders_candidates_behind_what_was_measured_here(database: ProfileDatabase) -> None:
    def timed(path: str, ratio: float, **changes: Any) -> Measurement:
        return row(path, seconds=(ratio,) * 3, plain_seconds=(1.0,) * 3, **changes)

    database.add_all(
        [
            timed("here", 0.5),
            timed("misjudged", 0.9),  # what was measured here counts, not that it was best there
            timed("misjudged", 0.1, hardware=THERE.digest),
            timed("there", 0.3, hardware=THERE.digest),
            timed("older", 0.7, versions="jaxlib 0"),
            row("fails", seconds=(), failure=Failure.run_error),
            timed("elsewhere", 0.01, subject=OTHER),
        ]
    )
    assert database.ranking(SUBJECT, HERE.digest, "jaxlib 1") == [
        "there", "here", "older", "misjudged", "fails"
    ]  # fmt: skip
    assert database.ranking(SUBJECT, THERE.digest)[:2] == ["misjudged", "there"]


WRITER = """
import sys
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.profile.database import ProfileDatabase
database = ProfileDatabase(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    database.add(Measurement("a" * 64, f"{sys.argv[2]}@{i}", "b" * 16, "", (0.1,) * 50, when=float(i)))
    if sys.argv[2] == "killed":
        print(i, flush=True)
"""


def writer(file: FilePath, name: str, count: int) -> Any:
    source = str(FilePath(sys.modules["pcp"].__file__ or "").parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
    )


def test_two_processes_write_at_once_and_a_third_is_killed(database: ProfileDatabase) -> None:
    database.file.parent.mkdir()
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(writer(database.file, name, 50)) for name in ("one", "two")]
        killed = stack.enter_context(writer(database.file, "killed", 1_000_000))
        stack.callback(killed.kill)
        for child in (*children, killed):
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [int(killed.stdout.readline()) for _ in range(10)]
        killed.send_signal(signal.SIGKILL)
        said += [int(line) for line in killed.stdout if line.endswith("\n")]
        assert [child.wait() for child in children] == [0, 0]
        assert killed.wait() == -signal.SIGKILL
    found = [each.path for each in database.measurements()]
    for name in ("one", "two"):
        expected = sorted(f"{name}@{i}" for i in range(50))
        assert sorted(path for path in found if path.startswith(name)) == expected
    # What the killed process had been told is written is there; one more may be.
    assert sum(path.startswith("killed") for path in found) in (len(said), len(said) + 1)
    with contextlib.closing(sqlite3.connect(database.file)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


def test_export_and_merge_are_idempotent(database: ProfileDatabase, tmp_path: FilePath) -> None:
    database.add(row(PATH.digest), path=PATH, hardware=HERE, about="a product")
    database.add(row("bad", seconds=(), error=math.inf, failure=Failure.not_finite), hardware=THERE)
    database.add(row(subject=OTHER))
    assert database.export(tmp_path / "all.jsonl") == 3
    assert database.export(tmp_path / "one.jsonl", SUBJECT) == 2
    lines = [json.loads(line) for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["path", "hardware", "about", "measurement", "measurement"]
    other = ProfileDatabase(tmp_path / "other.sqlite")
    assert other.merge(tmp_path / "one.jsonl") == 2
    assert other.merge(tmp_path / "all.jsonl") == 1
    assert other.merge(tmp_path / "all.jsonl") == 0
    assert other.measurements() == database.measurements()
    assert other.path_of(PATH.digest) == PATH
    assert other.subjects()[SUBJECT] == "a product"


def product(size: int) -> tuple[Program, Region]:
    program = pcp.trace(lambda x, w: x @ w, pcp.spec((size, 8), "f32"), pcp.spec((8, 3), "f32"))
    region = Region.of(program)
    assert region is not None
    return program, region


def test_regions_travel_with_their_measurements_and_go_with_them(
    database: ProfileDatabase, tmp_path: FilePath
) -> None:
    (first, small), (second, large) = product(4), product(5)
    for program, region in ((first, small), (first, small), (second, large)):
        database.add(row("product.xla:bf16@1", subject=program.digest), region=region)
    database.add(row("other.kernel@1", subject=second.digest))
    assert database.regions() == {first.digest: small, second.digest: large}
    assert database.regions([first.digest]) == {first.digest: small}
    database.export(tmp_path / "one.jsonl", first.digest)
    database.export(tmp_path / "all.jsonl")
    other = ProfileDatabase(tmp_path / "other.sqlite")
    other.merge(tmp_path / "one.jsonl")
    assert other.regions() == {first.digest: small}
    other.merge(tmp_path / "all.jsonl")
    assert other.regions() == database.regions()
    found = other.of_regions("product", HERE.digest, "jaxlib 1", 10)
    assert {each.subject for each in found} == {first.digest, second.digest}
    assert {each.path for each in found} == {"product.xla:bf16@1"}
    assert len(other.of_regions("product", HERE.digest, "jaxlib 1", 1)) == 1
    assert other.of_regions("product", THERE.digest, "jaxlib 1", 10) == []
    assert other.prune(subject=first.digest) == 1
    assert other.regions() == {second.digest: large}


def test_a_region_that_is_another_program_is_not_merged(
    database: ProfileDatabase, tmp_path: FilePath
) -> None:
    _, region = product(4)
    line = {"region": {"digest": "a" * 64, "program": region.to_text()}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InvalidRows, match=r"line 1 of .*the region has digest \w{12}; expected aaaaaaaaaaaa"):
        database.merge(tmp_path / "rows.jsonl")


def test_a_database_of_an_older_version_is_lifted_when_it_is_opened(database: ProfileDatabase) -> None:
    program, region = product(4)
    database.add(row())
    database.add(row("bad", error=0.5, failure=Failure.inaccurate))
    with contextlib.closing(sqlite3.connect(database.file)) as connection:  # as format 1 was
        connection.execute("drop table regions")
        connection.execute("drop table agreements")
        connection.execute("alter table measurements drop column judgement")
        connection.execute("pragma user_version = 1")
        connection.commit()
    # Times stay; errors were defined otherwise then.
    assert database.measurements() == [row(error=None, plain_error=None)]
    assert database.regions() == {}
    assert database.agreed("asked") is None
    assert database.of_regions("product", HERE.digest, "jaxlib 1", 10) == []
    added = row("product.xla:bf16@1", subject=program.digest)
    database.add(added, region=region)
    assert database.regions() == {program.digest: region}
    database.agree("asked", b"sketch")
    assert database.agreed("asked") == b"sketch"
    assert database.measurements() == [row(error=None, plain_error=None), added]
    with contextlib.closing(sqlite3.connect(database.file)) as connection:
        assert connection.execute("pragma user_version").fetchone() == (5,)


OLD = Path(SUBJECT, (KERNEL.move(Choice("product.native_bf16", 1), "c" * 64),))


def of_format_4(database: ProfileDatabase) -> None:
    """As an older version left it: names of kernels are what it called them."""
    database.add(row("product.native:bf16@1"))
    with contextlib.closing(sqlite3.connect(database.file)) as connection:
        connection.execute("update measurements set path = 'product.native_bf16@1'")
        connection.execute("insert into paths values (?, ?)", (OLD.digest, OLD.to_json()))
        connection.execute("pragma user_version = 4")
        connection.commit()


def test_rows_of_an_older_version_are_of_what_their_kernels_are_called_now(database: ProfileDatabase) -> None:
    of_format_4(database)
    now = Path.from_json(OLD.to_json())
    assert (now.digest == OLD.digest, [each.kernel for each in now.choices.values()]) == (
        False,
        ["product.native:bf16"],
    )
    assert [each.path for each in database.measurements()] == ["product.native:bf16@1"]
    assert (database.path_of(now.digest), database.path_of(OLD.digest)) == (now, None)
    database.add(row("product.native:bf16@1"))  # which is the row that is there
    assert len(database.measurements()) == 1


def test_rows_from_an_older_version_are_merged_and_received_by_the_names_of_now(
    database: ProfileDatabase, tmp_path: FilePath
) -> None:
    now = Path.from_json(OLD.to_json())
    file = tmp_path / "rows.jsonl"
    written = [row(OLD.digest), row("product.native_bf16@1"), row("product.native_bf16@1 at its site")]
    path = json.dumps({"path": OLD.to_json()}, separators=(",", ":"))
    file.write_text("\n".join([path, *map(line_of, written)]) + "\n")
    assert database.merge(file) == 3
    labels = [now.digest, "product.native:bf16@1", "product.native:bf16@1 at its site"]
    assert sorted(each.path for each in database.measurements()) == sorted(labels)
    assert database.path_of(now.digest) == now
    for name in ("product.native_bf16@1", "product.native:bf16@1"):  # the last word counts
        database.receive([(OTHER, name, 0.5)])
    assert [each.path for each in database.measurements(OTHER)] == ["product.native:bf16@1"]


JUDGED: dict[str, Any] = {
    "result": "y", "slice_error": 0.5, "slice": "", "plain_slice": 0.0, "reference": "float64", "grouped": [],
    "shares": [], "ignored": [],
}  # fmt: skip
GOOD = {
    "subject": SUBJECT, "path": "plain", "hardware": HERE.digest, "versions": "", "seconds": [1.0],
    "plain_seconds": [1], "error": "inf", "plain_error": None, "peak_bytes": 3, "failure": "crash", "detail": "", "when": 1,
    "judgement": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected one object"),
        ('{"kernel":1}', "expected one of measurement, path, hardware, about, region"),
        ('{"path":"{}"}', "not a path"),
        ('{"path":7}', "the path is 7"),
        ('{"hardware":{"name":"x"}}', "it holds name; expected name, facts"),
        ('{"about":{"digest":"../x","text":""}}', "hexadecimal"),
        ({"subject": "A" * 64}, "hexadecimal"),
        ({"seconds": [0.0]}, "seconds above 0"),
        ({"seconds": "1"}, "expected a list of seconds"),
        ({"plain_seconds": [math.nan]}, "expected a number from 0"),
        ({"error": -1}, "error is -1"),
        ({"error": True}, "error is True"),
        ({"plain_error": math.inf}, "plain_error is inf"),
        ({"peak_bytes": 1.5}, "peak_bytes is 1.5"),
        ({"failure": "boredom"}, "the failure is 'boredom'; expected null or one of compile error, "),
        ({"detail": "x" * 5000}, "at most 4096"),
        ({"when": "now"}, "when is 'now'"),
        ({"more": 1}, "expected subject, path"),
        ({"judgement": 7}, "expected result, slice_error, slice"),
        ({"judgement": JUDGED | {"grouped": [["k"]]}}, "expected pairs of a name and an error"),
        ({"judgement": JUDGED | {"slice_error": -1}}, "slice_error is -1"),
        ({"judgement": JUDGED | {"ignored": "x"}}, "ignored is 'x'; expected a list"),
        ({"judgement": JUDGED | {"missed": [["x", -1]]}}, "missed is -1; expected a number from 0"),
    ],
)
def test_a_bad_line_stops_the_merge_before_anything_is_added(
    database: ProfileDatabase, tmp_path: FilePath, line: str | dict[str, Any], words: str
) -> None:
    bad = line if isinstance(line, str) else json.dumps({"measurement": GOOD | line})
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"measurement": GOOD}) + "\n" + bad + "\n")
    with pytest.raises(InvalidRows, match=r"line 2 of .*rows.jsonl") as raised:
        database.merge(file)
    assert words in str(raised.value)
    assert "nothing was merged; give a file that `pcp profile export` wrote" in str(raised.value)
    assert database.measurements() == []


def test_prune(database: ProfileDatabase) -> None:
    database.add(row(PATH.digest, when=10.0), path=PATH, hardware=HERE, about="old")
    database.add(row(subject=OTHER, hardware=THERE.digest, versions="jaxlib 0", when=20.0), hardware=THERE)
    database.add(row("b", subject=OTHER, when=30.0), hardware=HERE)
    with pytest.raises(NothingToPrune, match="name the age, program, hardware or versions"):
        database.prune()
    assert database.prune(before=15.0, subject=OTHER) == 0
    assert database.prune(other_hardware_than=HERE.digest) == 1
    assert database.hardware() == {HERE.digest: HERE}
    database.agree("asked", b"sketch")
    assert database.prune(before=15.0) == 1
    assert database.agreed("asked") is None
    assert database.path_of(PATH.digest) is None
    assert database.prune(other_versions_than="jaxlib 1") == 0
    assert database.prune(hardware=HERE.digest, subject=OTHER) == 1
    assert database.measurements() == []
    assert ProfileDatabase(database.file.with_name("absent")).prune(before=1.0) == 0


def refusal(database: ProfileDatabase, *, reading: bool = True) -> str:
    with pytest.raises(DatabaseUnusable, match=r"the profile database .* is not usable: ") as raised:
        database.add(row())
    if reading:
        with pytest.raises(DatabaseUnusable):
            database.measurements()
    return str(raised.value)


def test_a_file_that_is_no_database(database: ProfileDatabase) -> None:
    database.file.parent.mkdir()
    database.file.write_bytes(b"garbage " * 1000)
    assert (
        "it is damaged (file is not a database); expected an SQLite database that PCP made; move it"
        in refusal(database)
    )


def test_a_database_with_damaged_pages(database: ProfileDatabase) -> None:
    database.add_all([row(f"p@{i}", when=float(i)) for i in range(300)])
    raw = bytearray(database.file.read_bytes())
    raw[4096 : 4096 * 6] = b"\xff" * (4096 * 5)
    database.file.write_bytes(raw)
    with pytest.raises(DatabaseUnusable, match="damaged"):
        database.measurements()


def test_a_database_of_a_newer_version(database: ProfileDatabase) -> None:
    database.add(row())
    connection = sqlite3.connect(database.file)
    connection.execute("pragma user_version = 7")
    connection.close()
    assert "it has format 7, this version of PCP reads up to 5; update" in refusal(database)


def test_a_database_of_something_else(database: ProfileDatabase) -> None:
    database.file.parent.mkdir()
    connection = sqlite3.connect(database.file)
    connection.execute("create table songs (name)")
    connection.commit()
    connection.close()
    assert "an SQLite database of something else; expected one that PCP made" in refusal(database)


def test_a_locked_database(database: ProfileDatabase) -> None:
    database.add(row())
    impatient = ProfileDatabase(database.file, busy_seconds=0.05)
    connection = sqlite3.connect(database.file, isolation_level=None)
    connection.execute("begin immediate")
    with pytest.raises(
        DatabaseUnusable, match=r"another process has kept it locked for 0.05 s; end that process"
    ):
        impatient.add(row("other"))
    assert impatient.measurements() == [row()]  # readers do not wait for a writer
    connection.close()


def test_a_database_that_may_not_be_written(
    database: ProfileDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add(row())
    connect = sqlite3.connect

    def without_rights(file: str, **more: Any) -> sqlite3.Connection:
        return connect(file.replace("mode=rwc", "mode=ro"), **more)

    # The user who runs the tests may be root, who may write everything.
    monkeypatch.setattr(sqlite3, "connect", without_rights)
    with pytest.raises(
        DatabaseUnusable, match=r"readonly database.*; make it a file that you may write, or set PCP_CACHE"
    ):
        database.add(row("other"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert database.measurements() == [row()]


def test_a_folder_in_the_place_of_the_file_or_a_file_in_that_of_the_folder(tmp_path: FilePath) -> None:
    assert "cannot be opened" in refusal(ProfileDatabase(tmp_path))
    (tmp_path / "file").touch()
    inside = ProfileDatabase(tmp_path / "file" / "profile.sqlite")
    assert "its folder cannot be made: File exists; make it a file that you may write" in refusal(
        inside, reading=False
    )


def test_planning_goes_on_without_a_database(tmp_path: FilePath, caplog: pytest.LogCaptureFixture) -> None:
    sound = BestEffortDatabase(ProfileDatabase(tmp_path / "profile.sqlite"))
    sound.add(row(PATH.digest), path=PATH, hardware=HERE)
    assert (len(sound.measurements(SUBJECT)), sound.path_of(PATH.digest)) == (1, PATH)
    assert sound.ranking(SUBJECT, HERE.digest) == [PATH.digest]
    assert sound.usable
    for method in ("measurements", "path_of", "ranking", "add"):
        broken = BestEffortDatabase(ProfileDatabase(tmp_path))
        arguments: tuple[Any, ...] = {"add": (row(),), "ranking": (SUBJECT, HERE.digest)}.get(
            method, (SUBJECT,)
        )
        caplog.clear()
        for _ in range(2):
            assert not getattr(broken, method)(*arguments)
        [record] = caplog.records
        assert record.getMessage().endswith("planning continues, but its measurements are not kept")
        assert not broken.usable
