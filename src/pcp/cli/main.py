"""`pcp`: finds the command, and turns exceptions into messages and exit codes."""

import argparse
import contextlib
import errno
import importlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import IO

from pcp.cli.words.help import Formatter, with_example
from pcp.cli.words.parsing import Parser, WrongCommandLine
from pcp.errors import PCPError
from pcp.interruption import TERMINATED, leave, unraisable
from pcp.training.display.log_bounds import LogBounds

_UNREAD = 141
"""What shells say of a command that ended since nobody reads its output: 128 and the number of SIGPIPE."""

COMMANDS = {
    "train": "train a model, in one process or with a Shepherd and Workers on this machine",
    "data": "write a text as token shards",
    "export": "write the model of a run as a folder that transformers loads",
    "generate": "continue a text with a trained model",
    "sample": "make images with a trained model",
    "chat": "talk with a model in the terminal",
    "serve": "serve a model under the APIs that clients know",
    "run": "run any StableHLO program on arrays from a file",
    "grad": "write the gradient of a program",
    "inspect": "show what a program takes, computes and moves, and how long its operations take",
    "profile": "list, export, merge, prune and plot the measurements that PCP keeps",
    "plan": "find the fastest way to run a program within a tolerance",
    "compile": "compile a program for a chip that need not be here",
    "explore": "measure many ways to run a program, for later plans",
    "kernels": "list and measure kernels, and verify one from outside",
    "shepherd": "coordinate a distributed run",
    "worker": "compute for a Shepherd",
    "status": "show a run as it stands, or serve it as a page",
    "keys": "make and revoke the key files of Workers",
    "doctor": "check what PCP finds on this machine, what is missing, and what to do about it",
}

EPILOG = """`pcp COMMAND --help` explains a command and shows examples. Every command takes --json.

exit codes: 0 done; 1 it failed, for example because of a bug or a full disk; 2 an argument or a file is wrong (the
message says which); 3 a kernel is refused; 130 interrupted; 141 nobody reads what it prints any more; 143 terminated

examples:
  pcp doctor                                      check this machine
  pcp train                                       train GPT-2 (nano) on Shakespeare, in this process
  pcp train --workers 2                           the same, with a Shepherd and two Workers
  pcp generate runs/gpt2-nano --prompt "ROMEO:"   write text with the trained model
  pcp plan step.pcp --tolerance 1e-2              find the fastest way to run a program with an error below 1 %
"""


class DiskFull(PCPError):
    """There was no room for what a command writes."""


class NoPermission(PCPError):
    """A file or folder that this user may not use."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"you have no permission for {error.filename}: {error.strerror}; change its mode, or name another place"
        )


def main(arguments: Sequence[str] | None = None, begins: Callable[[], None] = lambda: None) -> int:
    """Run the command line and return its exit code.

    Arguments:
        arguments: of `pcp`; those of this process if None.
        begins: called when all that the command needs is imported, before it does anything.
    """
    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = unraisable
    try:
        return _main(arguments, begins)
    except KeyboardInterrupt:
        print("pcp: interrupted", file=sys.stderr)
        return leave(128 + signal.SIGINT)
    except SystemExit as ended:
        if ended.code == TERMINATED:
            leave(TERMINATED)
        raise
    finally:
        sys.unraisablehook = before[1]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before[0])


def _main(arguments: Sequence[str] | None, begins: Callable[[], None]) -> int:
    parser = Parser(
        prog="pcp",
        description="PCP, the Planetary Compute Protocol: train and run tensor programs on one device or many.",
        epilog=EPILOG,
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="pcp")
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name, summary in COMMANDS.items():
        # Only the command that was asked for is imported: the others cost seconds.
        if name in words[:1]:
            module = importlib.import_module(f"pcp.cli.{name}")
            texts = with_example(module.DESCRIPTION, name)
            command = commands.add_parser(name, **texts, formatter_class=Formatter)
            module.add_arguments(command)
            command.add_argument(
                "--json",
                action="store_true",
                help="print to standard output one JSON object per line, nothing else",
            )
        else:
            commands.add_parser(name, help=summary)
    if not words:
        parser.print_help()
        return 2
    try:
        parsed = parser.parse_args(words)
    except WrongCommandLine as wrong:
        _complain(wrong, "--json" in words)
        return 2
    _start_log(os.environ.get("PCP_LOG"))
    try:
        command_line = importlib.import_module(f"pcp.cli.{parsed.command}")
        begins()
        code: int = command_line.run(parsed)
        sys.stdout.flush()
    except PCPError as error:
        _complain(error, getattr(parsed, "json", False))
        return 2
    except BrokenPipeError:
        if not _nobody_reads(sys.stdout):
            raise
        # Python would complain again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename:
            _complain(NoPermission(error), getattr(parsed, "json", False))
            return 2
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = f" of {error.filename}" if error.filename else ""
        _complain(
            DiskFull(f"the disk{place} is full: {error.strerror}. Free some space and try again"),
            getattr(parsed, "json", False),
        )
        return 1
    return code


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """End as after an error, so that whatever was begun is cleaned up."""
    raise SystemExit(TERMINATED)


def _nobody_reads(stream: IO[str]) -> bool:
    """Whether whoever read a stream has gone, as `head` does when it has enough."""
    try:
        stream.write("\n")
        stream.flush()
    except BrokenPipeError:
        return True
    return False


def _start_log(level: str | None) -> None:
    """Send what PCP logs from a level on to standard error; of other libraries only what is a warning."""
    handler = logging.StreamHandler()
    handler.addFilter(LogBounds())
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        handlers=[handler],
    )
    if level is None:
        return
    if level not in logging.getLevelNamesMapping():
        logging.warning("PCP_LOG is %r; expected DEBUG, INFO, WARNING or ERROR", level)
        return
    logging.getLogger("pcp").setLevel(level)


def _complain(error: PCPError, as_json: bool) -> None:
    if as_json:
        with contextlib.suppress(OSError):  # standard output may be what has no room
            _as_json(error)
    print(f"pcp: {error}", file=sys.stderr)


def _as_json(error: PCPError) -> None:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)


class _Version(argparse.Action):
    """Tells the version; what knows it is imported only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            installed = version("planetary-compute-protocol")
        except PackageNotFoundError:
            installed = "(not installed)"
        print(f"pcp {installed}")
        parser.exit()
