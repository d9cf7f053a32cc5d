"""Runs that are watched, paused and stopped from a page, and machines that sleep in the middle of one."""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pcp.backends import Target
from pcp.cli import main
from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.round_arithmetic.programs import inner_step
from pcp.folders import cache_folder
from pcp.kernels import kernel_named
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.shared import RECEIVED
from pcp.planning.search.site_classes import site_classes
from pcp.planning.search.whole import Whole
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder
from tests.dashboard.written import HOSTILE, add, written_run
from tests.distributed.processes.command import Command, is_round
from tests.distributed.processes.test_by_hand import is_lease_of, key_of, start_worker
from tests.distributed.waiting import wait_until

TOKEN = "0123456789abcdef0123456789abcdef"
TOLERANCE = 1e-2
TOML = """
model = "gpt2-nano"
data = "{corpus}"
workers = 1
steps = 40000
inner_steps = 4
batch = 2
warmup_steps = 4
evaluate_every = 0
checkpoint_every = 400
tolerance = {tolerance}
plan_seconds = 0
"""


def plan_file(folder: Path, corpus: Path, tolerance: float = 0.0) -> str:
    path = folder / "run.toml"
    path.write_text(TOML.format(corpus=corpus, tolerance=tolerance), encoding="utf-8")
    return str(path)


def is_listening(record: dict[str, Any]) -> bool:
    return record.get("event") == "listening"


def has_received(record: dict[str, Any]) -> bool:
    return record.get("event") == "totals" and record["received"] > 0


def fetched(address: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{address}{path}", data, {"authorization": f"Bearer {token}"} if data else {}
    )
    with urllib.request.urlopen(request, timeout=10.0) as answer:
        return answer.read().decode()


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium here; apt-get install chromium")
    return found


@pytest.mark.runs
def test_a_run_is_watched_paused_and_stopped_from_its_page(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
    run, token = tmp_path / "run", tmp_path / "token"
    token.write_text(TOKEN)
    page = ["--web", "127.0.0.1:0", "--token-file", str(token)]
    with Command(["shepherd", plan_file(tmp_path, corpus), "--run", str(run), *page], tmp_path) as shepherd:
        listening = shepherd.wait_for(is_listening)
        address = shepherd.wait_for(lambda record: record.get("event") == "web")["address"]
        assert f"pcp: {run} is shown at http://{address}" in shepherd.said
        devices = ["--devices", "cpu:0", "--folder", str(tmp_path / "workers")]
        key = key_of("alice", run, capsys)
        with start_worker(listening["address"], key, tmp_path, *devices) as alice:
            shepherd.wait_for(is_round(2))
            shepherd.wait_for(has_received)  # totals are told at intervals, which rounds need not wait for
            assert main(["status", address, "--json"]) == 0
            told, worker = map(json.loads, capsys.readouterr().out.splitlines())
            assert told["state"] == "running"
            assert told["round"] >= 2
            assert told["received"] > 0
            assert (worker["worker"], worker["updates"] >= 1, worker["utilisation"] > 0) == (
                "alice",
                True,
                True,
            )
            assert re.search(r"^pcp_round [2-9]|^pcp_round \d\d", fetched(address, "/metrics"), re.MULTILINE)

            with pytest.raises(urllib.error.HTTPError, match="401"):
                fetched(address, "/api/ask", {"action": "pause"}, "wrong")
            fetched(address, "/api/ask", {"action": "pause"})
            shepherd.wait_for(lambda record: record.get("paused") is True)
            shepherd.wait_for(lambda record: record.get("event") == "totals", len(totals(shepherd)) + 1)
            leases = len(leases_of(shepherd))
            shepherd.wait_for(lambda record: record.get("event") == "totals", len(totals(shepherd)) + 1)
            assert len(leases_of(shepherd)) == leases, "nothing new is given"
            fetched(address, "/api/ask", {"action": "resume"})
            shepherd.wait_for(lambda record: is_lease_of("alice", record), leases + 1)

            pids = json.loads((tmp_path / "workers" / "logs" / "processes.json").read_text())
            subprocess.run(["kill", "-9", str(pids["alice"])], check=True)
            ended = alice.wait_for(lambda record: record.get("event") == "process")
            assert (ended["code"], ended["restarted"]) == (-9, True)
            lost = len(leases_of(shepherd))
            shepherd.wait_for(lambda record: is_lease_of("alice", record), lost + 1)

            fetched(address, "/api/ask", {"action": "drop", "worker": "alice"})
            assert alice.end() == 2, alice.said
            assert "was revoked; ask for a new key file; it is not started again" in alice.said
        fetched(address, "/api/ask", {"action": "stop"})
        assert shepherd.end() == 128 + signal.SIGTERM, shepherd.said
    assert main(["status", str(run)]) == 0
    assert capsys.readouterr().out.startswith("run: stopped: interrupted")
    with pytest.raises(OSError, match="refused"):
        fetched(address, "/api/run")


def totals(command: Command) -> list[dict[str, Any]]:
    return [record for record in command.records if record.get("event") == "totals"]


def leases_of(command: Command) -> list[dict[str, Any]]:
    return [record for record in command.records if is_lease_of("alice", record)]


@pytest.mark.runs
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
    browser = chromium()
    folder = written_run(tmp_path / "run", workers=30)
    add(folder, time.time(), event="trouble", message=HOSTILE)
    with Command(["status", str(folder.path), "--web", "127.0.0.1:0"], tmp_path) as status:
        address = status.wait_for(lambda record: record.get("event") == "web")["address"]
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
        shown = subprocess.run(
            [browser, *options, "--virtual-time-budget=3000", "--dump-dom", f"http://{address}/"],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
    assert "<title>run - PCP</title>" in shown, "what workers say is shown and not run"
    assert HOSTILE.split("=")[0] not in shown
    assert shown.count("&lt;img src=x") == 2, "in a refusal and in a trouble"
    assert '<span class="state running" id="state">running</span>' in shown
    assert (shown.count('class="lease"'), shown.count('class="out"')) == (25, 1), (
        "leases behind them, and one out"
    )
    assert "1 to 25 of 30" in shown
    assert '<path class="train"' in shown
    assert '<section class="card" id="asks-card" hidden="">' in shown


@pytest.mark.runs
def test_machines_that_sleep_come_back_by_themselves(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with Command(["shepherd", plan_file(tmp_path, corpus), "--run", str(run)], tmp_path) as shepherd:
        address = shepherd.wait_for(is_listening)["address"]
        with start_worker(address, key_of("alice", run, capsys), tmp_path) as alice:
            shepherd.wait_for(is_round(1))
            alice.process.send_signal(signal.SIGSTOP)
            try:
                shepherd.wait_for(lambda record: record.get("state") == "lost")
            finally:
                alice.process.send_signal(signal.SIGCONT)
            leases = len(leases_of(shepherd))
            shepherd.wait_for(lambda record: is_lease_of("alice", record), leases + 2)

            shepherd.process.send_signal(signal.SIGSTOP)
            try:
                wait_until(lambda: "the Shepherd is silent for" in alice.said)
            finally:
                shepherd.process.send_signal(signal.SIGCONT)
            leases = len(leases_of(shepherd))
            shepherd.wait_for(lambda record: is_lease_of("alice", record), leases + 2)
            assert alice.process.poll() is None
        shepherd.process.send_signal(signal.SIGTERM)
        assert shepherd.end() == 128 + signal.SIGTERM


@pytest.mark.runs
@pytest.mark.timeout(400)
def test_a_newcomer_is_told_what_another_measured(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    planned = plan_file(tmp_path, corpus, tolerance=TOLERANCE)
    with Command(["shepherd", planned, "--run", str(run)], tmp_path) as shepherd:
        address = shepherd.wait_for(is_listening)["address"]
        subject, kernel = has_measured(RunFolder(run), tmp_path / "cache-alice")
        with worker_with_cache("alice", address, key_of("alice", run, capsys), tmp_path) as alice:
            chosen = shepherd.wait_for(lambda record: "planned" in record)
            assert chosen["worker"] == "alice"
            assert re.match(r"path [0-9a-f]{12}: |the step runs as it is written", chosen["planned"])
            assert "others measured" not in alice.said
            with worker_with_cache("bob", address, key_of("bob", run, capsys), tmp_path) as bob:
                shepherd.wait_for(lambda record: "planned" in record and record["worker"] == "bob")
                assert "others measured 1 kernels at sites; 1 are new" in bob.said
        shepherd.process.send_signal(signal.SIGTERM)
        shepherd.end()
    database = ProfileDatabase(tmp_path / "cache-bob" / "profile.sqlite")
    assert [(row.subject, row.path, row.hardware, row.ratio) for row in database.measurements()] == [
        (subject, kernel, RECEIVED, pytest.approx(0.25))
    ]


def has_measured(folder: RunFolder, cache: Path) -> tuple[str, str]:
    """Let somebody have measured a kernel at a site of the run's step; returns the region's digest and the kernel."""
    recipe = prepare(folder)
    whole = Whole(inner_step(recipe, algorithm_of(recipe.config)), TOLERANCE, Target.of("cpu:0"))
    classes = site_classes(whole.prepared, "cpu", TOLERANCE)
    subject = next(each.digest for each in classes if each.family == "normalisation")
    hardware = hardware_of(Target.of("cpu:0"))
    times = {"seconds": (0.25,) * 30, "plain_seconds": (1.0,) * 30, "error": 1e-6, "plain_error": 1e-7}
    kernel = f"normalisation.native@{kernel_named('normalisation.native').version}"
    claim = Measurement(subject, kernel, hardware.digest, versions(), when=1.0, **times)
    ProfileDatabase(cache / "profile.sqlite").add(claim, hardware=hardware)
    return subject, kernel


def worker_with_cache(name: str, address: str, key: str, folder: Path) -> Command:
    """A worker with measurements of its own; the libraries that it builds are those of all, for they take a minute."""
    native, cache = cache_folder() / "native", folder / f"cache-{name}"
    native.mkdir(parents=True, exist_ok=True)
    cache.mkdir(exist_ok=True)
    (cache / "native").symlink_to(native)
    arguments = ["worker", "--connect", address, "--key", key]
    return Command(arguments, folder, {"PCP_CACHE_DIR": str(cache)})
