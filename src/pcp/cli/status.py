"""`pcp status`: a run as it stands, seen from outside: printed, or served as a page."""

import argparse
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from pcp.cli.asking import asked, base_of
from pcp.cli.keys import authority_of
from pcp.dashboard.follower import Follower, now
from pcp.distributed.shepherd.requests import Requests
from pcp.distributed.supervisor import end_with_parent
from pcp.distributed.wire.sockets import format_address
from pcp.errors import PCPError
from pcp.training.display.fleet import Row, state_of
from pcp.training.display.metrics import to_json_line
from pcp.training.display.progress import printable
from pcp.training.display.table import ROWS_SHOWN, render
from pcp.training.extras import import_extra
from pcp.training.run_folder import RunFolder

DESCRIPTION = {
    "description": "Show a run as it stands: rounds, loss, speed, workers, bytes, what was refused and why.",
    "epilog": """\
RUN is the folder of a run, or the address of a page that --web serves. The run may be live, finished or dead: the command
reads the file of metrics and asks no process. A Shepherd writes something every five seconds; of one that is silent for
half a minute it says so.

--web serves the same as a page, at / for people, at /metrics for Prometheus, at /api/run, /api/workers and /api/curves
as JSON. `pcp shepherd --web` and `pcp train --web` start this for their own run. It needs the extra `web`. It is a process of
its own: whoever reaches the page takes nothing from the Shepherd or the Workers. Listen on 127.0.0.1, and reach it from
elsewhere with `ssh -L 8080:127.0.0.1:8080 MACHINE`.

The page only shows, unless --token-file names a file with a token. Who gives that token to the page may pause and resume the
run, stop the Shepherd (it continues when started again), and drop a Worker, which revokes its key.

exit codes: 0; 2 an argument is wrong, there is no such run, or nobody answers at the address

examples:
  pcp status runs/gpt2-nano
  pcp status runs/gpt2-nano --json                  one JSON object for the run, then one for each Worker
  pcp status runs/gpt2-nano --web 127.0.0.1:8080    then open http://127.0.0.1:8080
  pcp status 127.0.0.1:8080                         from the page's address
  openssl rand -hex 32 > token; pcp status runs/gpt2-nano --web 127.0.0.1:8080 --token-file token
""",
}

ADVICE = "give the address that `pcp shepherd --web` prints"
PAGE = 100


class NoStatus(PCPError):
    """What is given is no run, and no address at which one can be asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or HOST:PORT of its page")
    add_web_arguments(parser)
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def add_web_arguments(parser: argparse._ActionsContainer) -> None:
    """Describe the arguments that say how a page is served."""
    parser.add_argument(
        "--web",
        type=address,
        metavar="HOST:PORT",
        help="serve the run as a page; 127.0.0.1:0 takes a free port",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="who has the token in it may ask for something"
    )


def address(text: str) -> tuple[str, int]:
    """Host and port to listen on; unlike the address of a peer, the port may be 0."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address; give HOST:PORT, for example 0.0.0.0:7433 or [::1]:0"
        )
    return host, int(port)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.supervised:
        end_with_parent()
    if arguments.web is not None:
        _serve(RunFolder.open(Path(arguments.run)), arguments)
        return 0
    if arguments.token_file is not None:
        raise NoStatus("--token-file is for a page; give --web 127.0.0.1:8080 too")
    if Path(arguments.run).is_dir():
        fleet, at = Follower(RunFolder.open(Path(arguments.run))).update(), now()
        summary, rows = fleet.summary(at), fleet.rows(at)
    elif ":" in arguments.run:
        base = base_of(arguments.run)
        summary, rows = asked(f"{base}/api/run", "workers", ADVICE), _pages(base)
    else:
        raise NoStatus(
            f"{arguments.run} is neither the folder of a run nor an address; give runs/NAME, or HOST:PORT of its page"
        )
    _print(summary, rows, arguments.json)
    return 0


def _print(summary: Row, rows: Iterable[Row], as_json: bool) -> None:
    if as_json:
        print(to_json_line({"event": "run", "state": state_of(summary)} | summary))
        for row in rows:
            print(to_json_line({"event": "worker"} | row))
        return
    console = Console(highlight=False)
    console.print(f"{printable(summary['run'])}: {state_of(summary)}", markup=False)
    console.print(render(summary, (row for row, _ in zip(rows, range(ROWS_SHOWN), strict=False))))
    for text, count in summary["planned"].items():
        console.print(f"{count:,} planned: {printable(text, 200)}", markup=False)
    for message, times in Counter(message for _, message in summary["troubles"]).items():
        often = f"{times} times, " if times > 1 else ""
        console.print(f"trouble: {often}{printable(message, 500)}", markup=False)


def _pages(base: str) -> Iterator[Row]:
    start = 0
    while rows := asked(f"{base}/api/workers?start={start}&count={PAGE}", "workers", ADVICE)["workers"]:
        yield from rows
        start += len(rows)


def _serve(folder: RunFolder, arguments: argparse.Namespace) -> None:
    check_web()
    from pcp.dashboard.serving import LOOPBACK_HOSTS, is_loopback, read_token, serve
    from pcp.dashboard.web import Dashboard

    host, port = arguments.web
    token = None if arguments.token_file is None else read_token(arguments.token_file, host)
    dashboard = Dashboard(Follower(folder), Requests(folder), lambda: authority_of(folder), token, now)

    def ready(listening: str) -> None:
        print(f"pcp: {folder.path} is shown at http://{listening}", file=sys.stderr, flush=True)
        if arguments.json:
            print(json.dumps({"event": "web", "address": listening}), flush=True)

    serve(dashboard.application(LOOPBACK_HOSTS if is_loopback(host) else ["*"]), host, port, ready)


@contextlib.contextmanager
def page_beside(folder: RunFolder, arguments: argparse.Namespace) -> Iterator[None]:
    """Serve the page of a run in a process of its own, for as long as this one goes on, if `--web` was given.

    Raises:
        MissingExtra, TokenUnusable: it cannot be served.
    """
    if arguments.web is None:
        if arguments.token_file is not None:
            raise NoStatus("--token-file is for a page; give --web 127.0.0.1:8080 too")
        yield
        return
    check_web()
    from pcp.dashboard.serving import read_token

    command = [sys.executable, "-m", "pcp", "status", str(folder.path), "--supervised"]
    command += ["--web", format_address(arguments.web), *(["--json"] if arguments.json else [])]
    if arguments.token_file is not None:
        read_token(arguments.token_file, arguments.web[0])
        command += ["--token-file", str(arguments.token_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as page:
        try:
            yield
        finally:
            page.terminate()


def check_web() -> None:
    """Look whether the packages of the page are here; raises MissingExtra."""
    for package in ("starlette", "uvicorn", "prometheus_client"):
        import_extra(package, "web", "The page of a run")
