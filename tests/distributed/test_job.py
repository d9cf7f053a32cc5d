"""What a Shepherd tells a Worker of a run, as JSON of a peer that is not trusted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.job import (
    InvalidJob,
    Job,
    JobExpired,
    JobForeign,
    JobUnsigned,
    Term,
    check_signature,
    renewed,
    signed,
)
from pcp.distributed.messages import Blob
from pcp.distributed.wire import Authority
from pcp.training.data.run_data import DataKind

NAMES = ("start", "restart", "step", "flat.0", "put.0", "push.0", "flat.1", "put.1", "push.1")
JOB = Job(
    {name: Blob(bytes([i]) * 32, 100 + i) for i, name in enumerate(NAMES)},
    Blob(b"t" * 32, 7),
    12,
    64,
    1337,
    65,
)

TERM = Term.of("mine", 1_000_000_000.0)
YEAR = 365 * 86400


def changed(**entries: Any) -> str:
    return json.dumps(json.loads(JOB.to_json()) | entries)


def test_a_job_comes_back_from_its_json() -> None:
    assert Job.from_json(JOB.to_json()) == JOB


def test_a_job_on_samples_comes_back_and_has_a_version_that_older_workers_refuse() -> None:
    job = replace(JOB, kind=DataKind.samples, context=0, vocabulary=0)
    assert Job.from_json(job.to_json()) == job
    assert (json.loads(job.to_json())["version"], json.loads(JOB.to_json())["version"]) == (7, 6)


def test_a_job_on_shards_comes_back_with_their_place() -> None:
    job = replace(JOB, kind=DataKind.shards, place="s3://bucket/corpus")
    assert Job.from_json(job.to_json()) == job
    assert json.loads(job.to_json())["version"] == 8
    assert "place" not in json.loads(JOB.to_json())


def test_a_tolerance_comes_back_and_is_not_there_without_one() -> None:
    job = replace(JOB, tolerance=1e-2, plan_seconds=30.0)
    assert Job.from_json(job.to_json()) == job
    assert "tolerance" not in json.loads(JOB.to_json())


def test_overlap_comes_back() -> None:
    job = replace(JOB, overlap=True)
    assert Job.from_json(job.to_json()) == job


def test_exchanges_come_back_and_are_not_there_without_any() -> None:
    job = replace(JOB, exchange_every=30, offer_bytes=808)
    assert Job.from_json(job.to_json()) == job
    assert "exchange_every" not in json.loads(JOB.to_json())


def test_artifacts_come_back_and_are_not_there_without_any() -> None:
    made = {name: Blob(bytes([64 + i]) * 32, 1000 + i) for i, name in enumerate(NAMES)}
    job = replace(JOB, artifacts={"llvm-cpu:generic": made, "vulkan": made})
    assert Job.from_json(job.to_json()) == job
    assert set(job.offered) == {*JOB.blobs, *made.values()}
    assert job.blobs == JOB.blobs
    assert "artifacts" not in json.loads(JOB.to_json())
    for wrong in ({"../x": made}, {"vulkan": {"step": made["step"]}}):
        with pytest.raises(InvalidJob, match="is not a chip with an artifact of every program"):
            Job.from_json(replace(JOB, artifacts=wrong).to_json())


def test_what_the_step_holds_comes_back_and_is_fetched_and_is_not_there_without() -> None:
    job = replace(JOB, held=Blob(b"h" * 32, 9))
    assert Job.from_json(job.to_json()) == job
    assert job.blobs == (*JOB.blobs, job.held)
    assert "held" not in json.loads(JOB.to_json())


def test_sizes_of_symbolic_programs_come_back_and_are_not_there_without_any() -> None:
    job = replace(JOB, sizes={"step": {"batch": 8, "length": 64}})
    assert Job.from_json(job.to_json()) == job
    assert "sizes" not in json.loads(JOB.to_json())
    for wrong in (
        {"other": {"batch": 8}},
        {"step": {"batch": 0}},
        {"step": {"batch": -1}},
        {"step": {"batch": 8.0}},
        {"step": {"a b": 8}},
        {"step": {"a" * 101: 8}},
        {"step": {}},
        {"step": {f"s{count}": 1 for count in range(100)}},
        {"step": 8},
        [["step", {"batch": 8}]],
    ):
        with pytest.raises(InvalidJob):
            Job.from_json(changed(sizes=wrong))


def test_a_signature_is_that_of_every_setting_by_one_authority(tmp_path: Path) -> None:
    authority, other = (Authority.create(tmp_path / name, name=name) for name in ("mine", "other"))
    worker = authority.issue("a")
    description = signed(JOB.to_json(), authority.sign, TERM)
    check_signature(description, worker.is_signed, "mine", 1e9)
    assert Job.from_json(description) == JOB
    for name in json.loads(description):
        for change in (7, None):
            changed = json.loads(description) | {name: change}
            if change is None:
                del changed[name]
            with pytest.raises((JobUnsigned, InvalidJob)):
                check_signature(json.dumps(changed), worker.is_signed)
    with pytest.raises(JobUnsigned, match="is not that of the authority in this worker's key file"):
        check_signature(signed(JOB.to_json(), other.sign, TERM), worker.is_signed)
    with pytest.raises(JobUnsigned, match="bears no signature"):
        check_signature(JOB.to_json(), worker.is_signed)


def test_a_signature_holds_for_one_run_and_a_year(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    is_signed = authority.issue("a").is_signed
    description = signed(JOB.to_json(), authority.sign, TERM)
    for now in (0.0, 1e9, 1e9 + YEAR - 1):
        check_signature(description, is_signed, "mine", now)
    with pytest.raises(
        JobForeign, match="signed this description for the run 'mine', and the Shepherd offers it for 'other'"
    ):
        check_signature(description, is_signed, "other", 1e9)
    for now in (1e9 + YEAR, 1e300):
        with pytest.raises(
            JobExpired, match=r"expired on 2002-09-09; ask the run's owner to start the Shepherd once"
        ):
            check_signature(description, is_signed, "mine", now)
    with pytest.raises(JobExpired):  # by the clock of this machine
        check_signature(description, is_signed)


@pytest.mark.parametrize(
    "term",
    [
        *(None, 7, "x", [], {}, {"run": "mine"}),
        *({"run": "mine", "issued": 1, "expires": each} for each in (-2, 1e300, "2", None, True)),
        {"run": 7, "issued": 1, "expires": 2},
    ],
)
def test_a_signature_that_names_no_run_is_refused_as_that_of_an_earlier_version(
    tmp_path: Path, term: Any
) -> None:
    authority = Authority.create(tmp_path)
    content = json.loads(JOB.to_json()) | ({} if term is None else {"signed_for": term})
    signature = authority.sign(b"pcp job\n" + json.dumps(content, sort_keys=True).encode()).hex()
    with pytest.raises(
        JobForeign, match="names no run and no time that it holds for, as those of earlier versions"
    ):
        check_signature(
            json.dumps(content | {"signature": signature}), authority.issue("a").is_signed, "mine", 1e9
        )


def test_a_signature_for_ever_is_as_good_as_one_for_long(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    description = signed(JOB.to_json(), authority.sign, Term("mine", 0, 1 << 62))
    check_signature(description, authority.issue("a").is_signed, "mine", 1e9)
    with pytest.raises(JobExpired):
        check_signature(description, authority.issue("a").is_signed, "mine", 1e300)


def test_a_shepherd_signs_again_after_half_of_the_time_where_it_can(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    is_signed = authority.issue("a").is_signed
    description = signed(JOB.to_json(), authority.sign, TERM)
    assert renewed(description, authority.sign, 1e9 + 0.49 * YEAR) == description
    assert renewed(description, None, 1e9 + 0.9 * YEAR) == description
    for now in (1e9 + 0.51 * YEAR, 1e9 + 3 * YEAR):
        again = renewed(description, authority.sign, now)
        check_signature(again, is_signed, "mine", now + YEAR - 2)
        assert Job.from_json(again) == JOB
    with pytest.raises(
        JobExpired, match=r"start the Shepherd once where keys/authority\.key is, which signs it again"
    ):
        renewed(description, None, 1e9 + YEAR)


def test_everything_to_fetch_is_named_once_programs_first() -> None:
    assert JOB.blobs == (*JOB.programs.values(), JOB.data)


def test_an_entry_that_nobody_knows_is_left_alone() -> None:
    assert Job.from_json(changed(more={"to": "come"})) == JOB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read: JSONDecodeError"),
        ("{", "cannot be read: JSONDecodeError"),
        ("[" * 100_000, "cannot be read: RecursionError"),
        ("[]", "cannot be read: TypeError"),
        ("null", "cannot be read: TypeError"),
        ("{}", "cannot be read: KeyError\\('version'\\)"),
        (
            changed(version=9),
            "described in version 9; this PCP understands 6, 7 and 8: install the one that began the run",
        ),
        (changed(version="1"), "described in version 1; this PCP understands 6, 7 and 8"),
        (changed(tolerance=-1), "-1 is not an amount"),
        (changed(tolerance="much"), "'much' is not an amount"),
        (changed(plan_seconds=float("inf")), "inf is not an amount"),
        (changed(programs={"evil": None}), "'evil' is not a program of a worker"),
        (changed(programs={"push.01": None}), "'push.01' is not a program of a worker"),
        (changed(programs=[]), "AttributeError"),
        (changed(programs={name: None for name in NAMES}), "TypeError"),
        (changed(tokens={"digest": "00", "size": 7}), "a digest has 1 bytes"),
        (changed(tokens={"digest": "x" * 64, "size": 7}), "non-hexadecimal"),
        (changed(tokens={"digest": 5, "size": 7}), "TypeError"),
        (changed(tokens={"digest": "00" * 32, "size": -1}), "-1 is not a count"),
        (changed(place=7), "7 is not text"),
        (changed(batch=True), "True is not a count"),
        (changed(batch=1.5), "1.5 is not a count"),
        (changed(context="64"), "'64' is not a count"),
        (changed(seed=None), "None is not a count"),
        (changed(overlap=1), "1 is neither true nor false"),
        (changed(vocabulary=-65), "-65 is not a count"),
    ],
)
def test_a_text_that_is_no_job_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        Job.from_json(text)
