"""A Worker in a process of its own follows a path with native kernels: what it fetched is the plain program, the library is its
machine's own."""

import os
from pathlib import Path

import pytest

from pcp.backends import Target
from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.round_arithmetic.programs import inner_step
from pcp.kernels import kernel_named, sites_of
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.whole import Whole
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder, load_state
from tests.distributed.processes.command import Command
from tests.distributed.tiny_run import assert_equal_arrays

TOLERANCE = 1e-2


@pytest.mark.runs
def test_a_worker_runs_native_kernels(
    tmp_path: Path, settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "native").symlink_to(os.environ["PCP_TEST_BUILDS"])  # building takes a minute
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path / "cache"))
    short = [*settings, "--workers=1", "--steps=8", "--inner-steps=8"]
    plain, fast = RunFolder(tmp_path / "plain"), RunFolder(tmp_path / "fast")
    with Command(["train", *short, "--run", str(plain.path)], tmp_path) as train:
        assert train.end() == 0, train.said

    recipe = prepare(plain)
    whole = Whole(inner_step(recipe, algorithm_of(recipe.config)), TOLERANCE, Target.of("cpu:0"))
    sites = [site for site in sites_of(whole.prepared, "cpu") if site.family.startswith("normalisation")]
    path = whole.path({site.key: kernel_named(f"{site.family}.native") for site in sites})
    assert {choice.kernel for choice in path.choices.values()} == {
        "normalisation.native",
        "normalisation_gradient.native",
    }
    hardware = hardware_of(Target.of("cpu:0"))
    times = {"seconds": (0.1,) * 6, "plain_seconds": (1.0,) * 6}
    claim = Measurement(
        whole.subject,
        path.digest,
        hardware.digest,
        versions(),
        error=1e-6,
        plain_error=1e-7,
        when=1.0,
        **times,
    )
    ProfileDatabase().add(claim, path=path, hardware=hardware)

    planned = [f"--tolerance={TOLERANCE}", "--seconds=0"]
    with Command(["train", *short, *planned, "--run", str(fast.path)], tmp_path) as train:
        assert train.end() == 0, train.said
    logs = "".join(file.read_text() for file in (fast.path / "logs").iterdir() if file.suffix != ".json")
    assert f"path {path.digest[:12]}: other kernels at {len(path.choices)} places" in logs, logs[-2000:]
    (_, mine, _), (_, theirs, _) = load_state(fast), load_state(plain)
    assert_equal_arrays(mine["params"], theirs["params"], 0, 1e-3)
