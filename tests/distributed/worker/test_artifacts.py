"""A Worker that takes only what the run's owner compiled ahead and signed: what it fetches, what it refuses, and why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pcp
from pcp.cli import main
from pcp.distributed.job import Job, JobUnsigned
from pcp.distributed.messages import Blob, Failure, FailureKind, Ready
from pcp.distributed.shepherd.new_run import check_run
from pcp.distributed.wire import Authority, BlobStore, ControlConnection
from pcp.distributed.worker.artifacts import (
    ArtifactForeign,
    ArtifactsMissing,
    ChipUnclear,
    NotForArtifacts,
    chips_of,
    loaded,
    with_artifacts_for,
)
from pcp.distributed.worker.offer import Offer
from pcp.distributed.worker.programs.training_process import TrainingProcess
from pcp.distributed.worker.ways import wire
from pcp.planning.artifact import CompiledArtifact, InvalidArtifact
from tests.distributed.tiny_run import store_job, tiny_recipe
from tests.distributed.worker.test_process import FINISHED, Shepherd, Trainer

CHIP = "llvm-cpu:generic"
PROGRAM = pcp.trace(lambda x: x * 2, pcp.spec((3,), "f32"))
BLOB = Blob(b"x" * 32, 1)


def job_for(*chips: str) -> Job:
    return Job(
        {"step": Blob(b"p" * 32, 1)}, BLOB, 1, 1, 1, 1, artifacts={chip: {"step": BLOB} for chip in chips}
    )


@pytest.fixture
def shepherd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shepherd:
    """One whose run has artifacts for two chips, and a worker that takes those of one."""
    monkeypatch.setattr(wire, "TrainingProcess", Trainer)
    monkeypatch.setattr(Trainer, "made", staticmethod(lambda: None), raising=False)
    made = Shepherd(tmp_path)
    names = list(made.job.programs)
    made.job = replace(
        made.job,
        artifacts={
            chip: {name: made.wire.store.put(f"{name} for {chip}".encode()) for name in names}
            for chip in (CHIP, "vulkan")
        },
    )
    made.offer = Offer(artifacts=CHIP)
    return made


def test_it_fetches_the_artifacts_of_its_chip_and_no_program(shepherd: Shepherd) -> None:
    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        await connection.close(FINISHED)

    assert shepherd.run(script).finished
    wanted = {*shepherd.job.artifacts[CHIP].values(), shepherd.job.data}
    kept = {path.name for path in (shepherd.folder / "ada").iterdir()}
    assert kept == {blob.digest.hex() for blob in wanted}


def test_a_run_without_artifacts_is_refused(shepherd: Shepherd) -> None:
    shepherd.job = replace(shepherd.job, artifacts={})

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        failure = await shepherd.next(connection, Failure)
        assert (failure.lease_id, failure.kind) == (0, FailureKind.REFUSED)

    with pytest.raises(ArtifactsMissing, match="takes compiled artifacts only, and the run has none for"):
        shepherd.run(script)
    assert not list((shepherd.folder / "ada").iterdir()), "nothing was fetched"


def test_a_shepherd_that_was_taken_over_cannot_offer_other_artifacts(shepherd: Shepherd) -> None:
    content = json.loads(shepherd.signed())
    content["artifacts"][CHIP] = content["artifacts"]["vulkan"]
    shepherd.signed = lambda _run=None: json.dumps(content)  # type: ignore[method-assign]  # with the old signature

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        assert (await shepherd.next(connection, Failure)).kind == FailureKind.UNSIGNED

    with pytest.raises(JobUnsigned, match="offers other programs or settings than the run's owner signed"):
        shepherd.run(script)


def test_an_artifact_that_is_not_offered_is_not_waited_for(shepherd: Shepherd) -> None:
    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome(blobs=shepherd.job.blobs))
        assert await shepherd.next(connection, Failure)

    with pytest.raises(
        pcp.errors.PCPError, match=r"the run names blob \w{16}, which the Shepherd does not offer"
    ):
        shepherd.run(script)


def test_which_artifacts_a_worker_takes() -> None:
    narrowed = with_artifacts_for(job_for(CHIP, "cuda:sm_80"), "iree:cuda", "cuda:sm_80")
    assert narrowed.programs == {"step": BLOB}
    assert list(narrowed.artifacts) == ["cuda:sm_80"]
    assert Job.from_json(job_for().to_json()).artifacts == {}
    with pytest.raises(ArtifactsMissing) as missing:
        with_artifacts_for(job_for(CHIP), "iree:cuda", "cuda:sm_86")
    assert str(missing.value) == (
        "this worker takes compiled artifacts only, and the run has none for cuda:sm_86; it has: llvm-cpu:generic. Ask the "
        'owner to begin a run with artifacts = "cuda:sm_86", or leave out --artifact-only'
    )


def test_a_worker_of_the_only_chip_need_not_name_it() -> None:
    pytest.importorskip("iree.runtime")
    assert list(with_artifacts_for(job_for(CHIP, "vulkan"), "iree:llvm-cpu", "").artifacts) == [CHIP]
    several = job_for("llvm-cpu:generic", "llvm-cpu:other")
    with pytest.raises(
        ChipUnclear, match=r"has artifacts for llvm-cpu:generic, llvm-cpu:other, .* --artifact-only llvm"
    ):
        with_artifacts_for(several, "iree:llvm-cpu", "")


def test_chips_that_a_run_may_name() -> None:
    pytest.importorskip("iree.runtime")
    assert chips_of("") == ()
    assert chips_of(" llvm-cpu:generic, vulkan,llvm-cpu:generic") == (CHIP, "vulkan:vp_android_baseline_2022")
    with pytest.raises(pcp.backends.InvalidTarget, match="'cuda:sm_99' is not a target of IREE"):
        chips_of("cuda:sm_99")


def test_code_for_the_owners_processor_is_for_nobody_else(tmp_path: Path) -> None:
    for name in ("llvm-cpu", "llvm-cpu:host"):
        with pytest.raises(NotForArtifacts, match=rf"artifacts names '{name}', .*; give llvm-cpu:generic"):
            check_run(tiny_recipe(tmp_path, artifacts=name))


def test_an_artifact_of_another_chip_is_refused() -> None:
    content = CompiledArtifact(PROGRAM, "vulkan", b"code").to_bytes()
    with pytest.raises(
        ArtifactForeign, match="'step' was compiled for vulkan, and the run lists it for llvm-cpu:gen"
    ):
        loaded({"step": content}, CHIP, "iree:llvm-cpu")


def test_a_program_in_place_of_an_artifact_is_not_compiled(tmp_path: Path) -> None:
    """Even if the owner signed it: there is nothing in that process that would."""
    recipe, store = tiny_recipe(tmp_path), BlobStore(tmp_path / "blobs", shared=True)
    job = store_job(recipe, store)
    job = replace(job, artifacts={CHIP: job.programs})
    with pytest.raises(InvalidArtifact, match=r"the artifact '\w+(\.0)?' is no compiled program"):
        TrainingProcess(job, store, "iree:llvm-cpu", offer=Offer(artifacts=CHIP))


@pytest.mark.parametrize("change", [lambda raw: raw[:-40], lambda raw: raw.replace(b"code", b"edoc")])
def test_a_damaged_artifact_is_refused(change: Any) -> None:
    raw = CompiledArtifact(PROGRAM, CHIP, b"code").to_bytes()
    assert CompiledArtifact.from_bytes(raw, "it").module == b"code"
    with pytest.raises(InvalidArtifact, match=r"the artifact 'step' is (no compiled program|damaged)"):
        loaded({"step": change(raw)}, CHIP, "iree:llvm-cpu")


def test_a_device_that_runs_no_artifacts_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "ada.pem"
    Authority.create(tmp_path / "keys").issue("ada").save_bundle(key)
    assert main(["worker", "--connect", "127.0.0.1:1", "--key", str(key), "--artifact-only"]) == 2
    said = capsys.readouterr().err
    assert (
        "--artifact-only needs a device that runs compiled artifacts, and cpu:0 does not; give one of IREE's"
        in said
    )
    command = ["worker", "--connect", "127.0.0.1:1", "--key", str(key), "--device", "iree:cuda"]
    assert main([*command, "--artifact-only", "cuda:sm_86", "--print", "slurm"]) == 0
    assert "--artifact-only cuda:sm_86" in capsys.readouterr().out


def test_ready_is_not_said_before_an_artifact_is_refused(
    shepherd: Shepherd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ArtifactForeign("the artifact 'step' was compiled for vulkan")

    monkeypatch.setattr(Trainer, "made", staticmethod(refuse))

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        assert (await shepherd.next(connection, Failure)).kind == FailureKind.REFUSED
        assert not [message for message in shepherd.heard if isinstance(message, Ready)]

    with pytest.raises(ArtifactForeign):
        shepherd.run(script)
