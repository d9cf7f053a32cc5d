"""The command line as a whole: commands, help, exit codes."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from pcp.__main__ import start
from pcp.cli import main
from pcp.cli.main import COMMANDS
from pcp.distributed.wire import Authority
from pcp.errors import PCPError

SOURCE = Path(__file__).parents[2] / "src"


def test_help_lists_every_command_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^    {name} +\w", shown, re.MULTILINE), name
    assert 'pcp generate runs/gpt2-nano --prompt "ROMEO:"' in shown
    assert "130 interrupted" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert re.search(rf"^  (.*&& )?pcp {command} ", capsys.readouterr().out, re.MULTILINE)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert re.fullmatch(r"pcp (\d+\.\d+\.\d+|\(not installed\))\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "COMMAND is 'trian' (did you mean 'train'?); choose one of train, data"),
        (["train", "--steps", "many"], "argument --steps: 'many' is no whole number"),
        (["train", "--nonsense"], "there is no option --nonsense"),
        (["train", "--lerning-rate", "1"], "no option --lerning-rate (did you mean '--learning-rate'?)"),
        (["profile"], "pcp profile needs action (one of list, show, "),
        (["doctor", "now"], "'now' is one argument too many"),
    ],
)
def test_a_wrong_command_line_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in (shown := capsys.readouterr().err)
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--json", "--steps", "many"], "argument --steps: 'many' is no whole number"),
        (["keys", "--json"], "pcp keys needs action (one of worker, revoke, shepherd, renew), --run"),
        (["plan", "--json", "p.pcp", "--nonsense"], "there is no option --nonsense"),
    ],
)
def test_a_wrong_command_line_is_one_line_of_json(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told["error"] == "WrongCommandLine"
    assert told["message"].startswith(f"{message}; ")
    assert message in shown.err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "pcp doctor" in capsys.readouterr().out


def test_no_permission_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "kept/runs")
    monkeypatch.setattr("importlib.import_module", lambda _name: _Raising(error))
    assert main(["keys"]) == 2
    assert "you have no permission for kept/runs: Permission denied; change" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_full_disk_is_told(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "out.npz")
    monkeypatch.setattr("importlib.import_module", lambda _name: _Raising(error))
    assert main(["keys", *flags]) == 1
    shown = capsys.readouterr()
    message = "the disk of out.npz is full: No space left on device. Free some space and try again"
    assert shown.err == f"pcp: {message}\n"
    assert shown.out == (json.dumps({"error": "DiskFull", "message": message}) + "\n" if flags else "")


class _Raising:
    """A command that ends in an exception."""

    DESCRIPTION: ClassVar[dict[str, str]] = {}

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def add_arguments(self, parser: object) -> None:
        """It takes none."""

    def run(self, _arguments: object) -> int:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PCPError("7 was given; expected 8"), 2, "pcp: 7 was given; expected 8\n"),
        (KeyboardInterrupt(), 130, "pcp: interrupted\n"),
    ],
)
def test_exceptions_become_exit_codes(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("importlib.import_module", lambda _name: _Raising(error))
    assert main(["keys"]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", message)


def pcp(command: str) -> list[str]:
    """A process that runs `pcp keys`, which does something else."""
    planted = (
        "import sys, importlib, threading, time, types\n"
        "sys.argv = ['pcp', 'keys']\n"
        "from pcp.__main__ import start\n"
        "def run(_arguments):\n"
        f"    {command}\n"
        "    return 0\n"
        "importlib.import_module = lambda _: types.SimpleNamespace(DESCRIPTION={}, add_arguments=lambda _: None, run=run)\n"
        "sys.exit(start())\n"
    )
    return [sys.executable, "-c", planted]


@pytest.mark.parametrize("lines", [1, 100_000])  # what fits into the buffer is written at the end
def test_a_reader_that_has_enough_ends_a_command_without_a_word(lines: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        pcp(f"time.sleep(0.2); print('a line\\n' * {lines})"),
        env=environment | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_pipe_that_breaks_elsewhere_is_not_hidden() -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(pcp("raise BrokenPipeError('a bug')"), env=environment, capture_output=True)
    assert ended.returncode == 1
    assert b"BrokenPipeError: a bug" in ended.stderr


def test_a_command_ends_though_a_thread_that_it_left_behind_does_not() -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    never = (
        "from pcp.distributed.runtime import Lane; lane = Lane('endless', print, print); begun = threading.Event(); "
        "lane.submit(lambda: (begun.set(), time.sleep(3600))); begun.wait(); lane.close(0.0); "
        "import atexit; atexit.register(lambda: print('Python was left'))"
    )
    ended = subprocess.run(pcp(never), env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "endless still works after 0.0 s and is left behind" in ended.stderr


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_comes_in_a_callback_ends_the_command(number: str, code: int) -> None:
    """Where Python says of an exception that it was ignored."""
    class_ = f"type('Callback', (), {{'__del__': lambda _: signal.raise_signal(signal.{number})}})"
    command = f"import signal; planted = {class_}(); del planted; time.sleep(3600)"
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    ended = subprocess.run(pcp(command), env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("entry", [["-m", "pcp"], ["-c", "from pcp.__main__ import start; start()"]])
@pytest.mark.parametrize("imported", ["argparse", "numpy"])  # by whatever runs commands, and by a command
def test_ctrl_c_during_imports_says_one_line(imported: str, entry: list[str], tmp_path: Path) -> None:
    planted = "import signal\nsignal.raise_signal(signal.SIGINT)\nraise ImportError('it goes on')\n"
    (tmp_path / f"{imported}.py").write_text(planted)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])}
    command = [sys.executable, *entry, "worker", "--connect", "127.0.0.1:1", "--key", "none.pem"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "pcp: interrupted\n")


def test_ctrl_c_is_left_to_a_command_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    class Command(_Raising):
        def run(self, arguments: object) -> int:
            found.append(signal.getsignal(signal.SIGINT))
            return super().run(arguments)

    found: list[object] = []
    monkeypatch.setattr("importlib.import_module", lambda _name: Command(KeyboardInterrupt()))
    monkeypatch.setattr(sys, "argv", ["pcp", "keys"])
    assert start() == 130
    assert found == [signal.default_int_handler]


def test_ctrl_c_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda _name: _Raising(PCPError("it ends")))
    monkeypatch.setattr(sys, "argv", ["pcp", "keys"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert start() == 2
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda _name: _Raising(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["keys"])


def test_only_the_command_asked_for_is_imported() -> None:
    program = (
        "import sys, pcp.__main__, pcp.cli.main; print(sorted(m for m in sys.modules if m.startswith('pcp')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    light = [
        "pcp",
        "pcp.__main__",
        "pcp.cli",
        "pcp.cli.main",
        "pcp.cli.words",
        "pcp.cli.words.help",
        "pcp.cli.words.parsing",
        "pcp.errors",
        "pcp.interruption",
    ]
    log = ["pcp.training", "pcp.training.display", "pcp.training.display.log_bounds"]
    assert done.stdout == f"{light + log}\n"


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("INFO", r"^\d\d:\d\d:\d\d pcp\.distributed\.address_file: waiting for a Shepherd"),
        ("LOUD", r"PCP_LOG is 'LOUD'; expected DEBUG, INFO, WARNING or ERROR"),
    ],
)
def test_the_log_has_a_level(tmp_path: Path, level: str, shown: str) -> None:
    key = tmp_path / "a.pem"
    Authority.create(tmp_path / "keys").issue("a").save_bundle(key)
    # A child, because a logger keeps its level.
    source = (
        "import pcp.cli, pcp.cli.worker\npcp.cli.worker.ADDRESS_SECONDS = 0.0\n"
        f"pcp.cli.main(['worker', '--connect', '@{tmp_path / 'none'}', '--key', '{key}'])"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PCP_LOG": level}
    ended = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    assert re.search(shown, ended.stderr, re.MULTILINE)
    assert "does not hold the address of a Shepherd" in ended.stderr
