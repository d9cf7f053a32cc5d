"""How a Worker is kept running: as a unit of systemd, as a job of Slurm, or as a process for each device of a machine."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pcp.backends import needs_driver
from pcp.distributed.supervisor import UNUSABLE, Child, Supervisor
from pcp.distributed.wire import Credentials
from pcp.errors import PCPError

POLL_SECONDS = 0.2
LIST_SECONDS = 120.0
KEPT = ("PCP_CACHE_DIR", "PCP_LOG", "PYTHONPATH", "XLA_FLAGS", "CUDA_VISIBLE_DEVICES")
"""Variables of this shell that a Worker needs wherever it is started."""


class NotEnoughKeys(PCPError):
    """A Worker for each device needs a key for each."""


class DevicesUnknown(PCPError):
    """It cannot be found out which devices this machine has."""


def systemd_unit(name: str, command: Sequence[str], folder: Path) -> str:
    """A unit that runs a Worker from the start of the machine on, and starts it again when it fails.

    Arguments:
        name: of the worker.
        command: program and arguments, with absolute paths.
        folder: to run it in.
    """
    variables = "".join(
        f"Environment={_systemd(f'{key}={value}')}\n" for key, value in _environment().items()
    )
    return f"""\
# Save as /etc/systemd/system/pcp-{name}.service, then: systemctl enable --now pcp-{name}
# (as yourself: ~/.config/systemd/user/pcp-{name}.service, systemctl --user enable --now pcp-{name}, loginctl enable-linger).
# To see what it does: journalctl -fu pcp-{name}
[Unit]
Description=PCP worker {name}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={" ".join(map(_systemd, command))}
WorkingDirectory={str(folder).replace("%", "%%")}
{variables}# 0: the run is complete. 2: the key or the address is wrong, which starting again would not mend.
Restart=on-failure
RestartSec=10
RestartPreventExitStatus={UNUSABLE}
SuccessExitStatus={128 + signal.SIGTERM}
TimeoutStopSec=20
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def slurm_script(name: str, command: Sequence[str], folder: Path, devices: Sequence[str]) -> str:
    """A job that runs a Worker, starts it again when it fails, and queues itself anew when its time is up.

    Arguments:
        name: of the worker.
        command: program and arguments, with absolute paths.
        folder: to run it in.
        devices: that it computes on, one for each process; `all` is an accelerator.
    """
    variables = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in _environment().items())
    count = sum(map(needs_driver, devices))
    gpus = f"#SBATCH --gpus-per-task={count}\n" if count else ""
    return f"""\
#!/bin/bash
# Save as pcp-{name}.sh, then: sbatch pcp-{name}.sh
#SBATCH --job-name=pcp-{name}
#SBATCH --output=pcp-{name}-%j.log
#SBATCH --open-mode=append
#SBATCH --ntasks=1
{gpus}#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -u
cd {shlex.quote(str(folder))} || exit 2
{variables}worker=0
stopping=0
# A minute before the job's time is up: say goodbye, and come back in another job.
trap 'stopping=1; [ "$worker" -gt 0 ] && kill -TERM "$worker"' TERM
pause=5
while [ "$stopping" -eq 0 ]; do
    started=$SECONDS
    {shlex.join(command)} &
    worker=$!
    # The time may have been up before there was a worker to tell.
    [ "$stopping" -eq 1 ] && kill -TERM "$worker"
    wait "$worker"
    code=$?
    # A signal interrupts the wait, not the worker.
    while kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done
    [ "$stopping" -eq 1 ] && break
    # 0: the run is complete. 2: the key or the address is wrong.
    if [ "$code" -eq 0 ] || [ "$code" -eq {UNUSABLE} ]; then exit "$code"; fi
    [ $((SECONDS - started)) -gt 600 ] && pause=5
    echo "the worker ended with code $code; it is started again in $pause s"
    sleep "$pause" &
    wait $!
    pause=$((pause < 150 ? 2 * pause : 300))
done
if [ -n "${{SLURM_JOB_ID:-}}" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
"""


def devices_here() -> list[str]:
    """The accelerators of this machine, or its processor; asked of another process, which lets go of them again."""
    code = (
        "import json; from pcp import backends; print(json.dumps([str(each) for each in backends.devices()]))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIST_SECONDS, check=True
        )
        devices: list[str] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        words = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise DevicesUnknown(
            f"the devices of this machine cannot be listed: {words[-1] if words else error}; name them: --devices cuda:0,cuda:1"
        ) from None
    return [each for each in devices if not each.startswith("cpu")] or devices[:1]


def run_on_devices(
    devices: Sequence[str],
    keys: Sequence[Path],
    arguments: Sequence[str],
    folder: Path,
    as_json: bool = False,
) -> int:
    """Run a Worker for each device until the run is complete; one that fails is started again, later each time.

    Arguments:
        devices: to compute on.
        keys: of the workers, one each.
        arguments: that all of them have.
        folder: for their files and what they say.
        as_json: whether their ends are printed as JSON, too.

    Returns:
        0 when all have finished; 2 when one was given something wrong, while others went on to their ends.

    Raises:
        NotEnoughKeys: there is not a key for each.
    """
    names = [Credentials.load_bundle(key).name for key in keys]
    if len(set(names)) < len(devices):
        raise NotEnoughKeys(
            f"there are {len(devices)} devices ({', '.join(devices)}) and keys of {len(set(names))} workers; give each device "
            "a key of its own: pcp keys worker NAME --run FOLDER for each, then --key NAME.pem --key OTHER.pem ..."
        )
    children = []
    for name, key, device in zip(names, keys, devices, strict=False):
        command = [sys.executable, "-m", "pcp", "worker", *arguments, "--key", str(key)]
        seen, environment = _confined(device)
        command += ["--device", seen, "--folder", str(folder / name), "--supervised"]
        children.append(Child(name, command, environment))
        print(
            f"pcp: worker {name} on {device}; what it says is in {folder / 'logs' / name}.log",
            file=sys.stderr,
        )
    supervisor = Supervisor(children, folder / "logs", patient=True)
    try:
        supervisor.start()
        while not all(child.finished for child in children):
            time.sleep(POLL_SECONDS)
            for event in supervisor.poll():
                print(f"pcp: {supervisor.said_of(event)}", file=sys.stderr, flush=True)
                if as_json:
                    print(json.dumps({"event": "process"} | asdict(event)), flush=True)
    finally:
        supervisor.stop()
    return UNUSABLE if any(child.given_up for child in children) else 0


def _confined(device: str) -> tuple[str, dict[str, str]]:
    """What a process sees that is shown one device only, as it would take memory of the others, too."""
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return device, {}
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    index = int(number or 0)
    if shown != [""] and index >= len(shown):
        raise DevicesUnknown(
            f"{device} is not here: CUDA_VISIBLE_DEVICES shows {len(shown)} ({','.join(shown)}), which are cuda:0 and so on; "
            "name fewer devices, or have more shown"
        )
    return "cuda:0", {"CUDA_VISIBLE_DEVICES": shown[index] if shown != [""] else str(index)}


def _environment() -> dict[str, str]:
    return {key: os.environ[key] for key in KEPT if os.environ.get(key)}


def _systemd(word: str) -> str:
    """A word as systemd reads it: its own quotes, specifiers and variables."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if set(word) & set(" \t'\";#\\") or not word else escaped
