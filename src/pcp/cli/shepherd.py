"""`pcp shepherd`: coordinate a distributed run."""

import argparse
import signal
import sys
from pathlib import Path

from pcp.cli.keys import authority_of
from pcp.distributed.shepherd import Shepherd, serve
from pcp.distributed.supervisor import end_with_parent
from pcp.training.config import TrainingConfig, read_config
from pcp.training.metrics import FanOut, JSONLinesFile, JSONLinesStream
from pcp.training.recipe import prepare
from pcp.training.run_folder import RunFolder

DESCRIPTION = {
    "description": "Coordinate a distributed run: lease data to Workers, merge what they learn, keep the parameters.",
    "epilog": """RUN is a TOML file of settings, for a new run, or the folder of a run, which goes on where it stopped.
Workers need a key file each: pcp keys worker NAME --run FOLDER.

examples:
  pcp shepherd run.toml --workers 8 --listen 0.0.0.0:7433
  pcp shepherd runs/gpt2-nano
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a TOML file of settings, or the folder of a run"
    )
    parser.add_argument(
        "--workers", type=int, default=None, help="worker slots that the data is cut for (default: of RUN)"
    )
    parser.add_argument("--folder", type=Path, default=None, help="folder of a new run (default: runs/MODEL)")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="address; port 0 picks a free one"
    )
    parser.add_argument("--supervised", action="store_true", help="end when standard input closes")
    parser.add_argument(
        "--json", action="store_true", help="metrics, one JSON object a line on standard output"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.supervised:
        end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    folder = _folder(arguments)
    host, _, port = arguments.listen.rpartition(":")
    authority = authority_of(folder)
    credentials = authority.issue("shepherd", "shepherd", [host or "127.0.0.1"])
    with JSONLinesFile(folder.metrics_file) as file:
        sink = FanOut([file, JSONLinesStream()]) if arguments.json else FanOut([file])
        shepherd = Shepherd(folder, prepare(folder), credentials, authority.revocations, sink.write)

        def announce(address: str) -> None:
            print(f"pcp: the Shepherd of {folder.path} listens on {address}", file=sys.stderr, flush=True)

        serve(shepherd, folder, host or "127.0.0.1", int(port), announce)
    return 0


def _folder(arguments: argparse.Namespace) -> RunFolder:
    if arguments.run.is_dir():
        return RunFolder.open(arguments.run)
    settings = read_config(arguments.run)
    if arguments.workers is not None:
        settings["workers"] = arguments.workers
    config = TrainingConfig().replaced(**settings)
    return RunFolder.create(arguments.folder or Path("runs") / config.model, config)
