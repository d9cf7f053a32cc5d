"""`pcp shepherd`: coordinate a distributed run."""

import argparse
import sys
from pathlib import Path

from pcp.cli.keys import authority_of
from pcp.cli.local_run import address_of
from pcp.distributed.algorithm_choice import check_settings
from pcp.distributed.coordinator import EventLogWriteFailed
from pcp.distributed.new_run import check_run
from pcp.distributed.serving import PATIENCE_SECONDS, serve
from pcp.distributed.shepherd import RunFailed, Shepherd
from pcp.distributed.supervisor import end_with_parent
from pcp.distributed.wire import PortInUse
from pcp.errors import PCPError
from pcp.training.config import InvalidTrainingConfig, read_config
from pcp.training.metrics import FanOut, JSONLinesFile, JSONLinesStream
from pcp.training.prepare import configured, prepare, write_trained_weights
from pcp.training.recipe import Recipe
from pcp.training.run_folder import RunFolder


class FixedAtTheBeginning(PCPError):
    """A setting was given for a run that goes on, where it can no longer change."""


DESCRIPTION = {
    "description": "Coordinate a distributed run: lease data to Workers, merge what they learn, keep the parameters.",
    "epilog": """RUN is a TOML file of settings, for a new run, or the folder of a run, which goes on where it stopped.
The settings are those of `pcp train`: workers, algorithm, inner_steps, fragments, delay, mixing, outer_learning_rate,
outer_momentum, upload, download, merge and quorum say how the run is shared; `pcp train --help` tells what they mean.

The Shepherd computes little: put it where it is reachable and stays up. Workers may come, go and come back at any time; every
batch of the run is merged exactly once. Each Worker needs a key file of its own: pcp keys worker NAME --run FOLDER.

Everything is kept in the folder of the run. A Shepherd that was stopped or killed is started again with that folder; it
goes on from the last outer step and listens where it listened before.

exit codes: 0 the run is complete; 1 it failed here and may go on after a restart (a full disk, a bug);
2 something given is wrong; 130 and 143 interrupted

examples:
  pcp shepherd run.toml --workers 8 --listen 0.0.0.0:7433     a new run, for Workers on other machines
  pcp keys worker alice --run runs/gpt2-nano                  a key for one of them
  pcp shepherd runs/gpt2-nano                                 go on after an interruption

with model = "loss.pcp", weights = "weights.safetensors" and data = "samples.npz" in run.toml, it trains any loss
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a TOML file of settings, or the folder of a run"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=None,
        help="worker slots that the data of a new run is cut for; more or fewer Workers may be there (default: of RUN)",
    )
    parser.add_argument("--folder", type=Path, default=None, help="folder of a new run (default: runs/MODEL)")
    parser.add_argument(
        "--listen",
        type=_address,
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="address; port 0 takes that of before, or a free one",
    )
    parser.add_argument("--supervised", action="store_true", help="end when standard input closes")
    parser.add_argument(
        "--json", action="store_true", help="metrics, one JSON object a line on standard output"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.supervised:
        end_with_parent()
    folder = _folder(arguments)
    recipe = _prepared(folder, fresh=not arguments.run.is_dir())
    host, port = arguments.listen
    authority = authority_of(folder)
    credentials = authority.issue("shepherd", "shepherd", [host])
    stream = JSONLinesStream() if arguments.json else None
    with JSONLinesFile(folder.metrics_file) as file:
        sink = FanOut([file, *([stream] if stream else [])])
        # The supervisor before this one may have been killed a moment ago, and its Shepherd be on its way out.
        patience = PATIENCE_SECONDS if arguments.supervised else 0.0
        shepherd = Shepherd(folder, recipe, credentials, authority.revocations, sink.write, patience)

        def announce(address: str) -> None:
            print(f"pcp: the Shepherd of {folder.path} listens on {address}", file=sys.stderr, flush=True)
            if stream:
                stream.write({"event": "listening", "address": address, "run": str(folder.path)})

        try:
            number = serve(shepherd, address_of(folder), host, port, announce)
        except PortInUse as error:
            raise PortInUse(f"{error}. To go on: pcp shepherd {folder.path} --listen HOST:PORT") from None
        except (EventLogWriteFailed, RunFailed) as error:
            print(f"pcp: {error}", file=sys.stderr)
            return 1
    if number:
        print(f"pcp: interrupted; pcp shepherd {folder.path} continues it", file=sys.stderr)
        return 128 + number
    write_trained_weights(folder, recipe)
    return 0


def _address(text: str) -> tuple[str, int]:
    """Host and port; unlike the address of a peer, the port may be 0."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address; give HOST:PORT, for example 0.0.0.0:7433 or [::1]:0"
        )
    return host, int(port)


def _folder(arguments: argparse.Namespace) -> RunFolder:
    """The folder of the run that the arguments ask for, made or opened."""
    if arguments.run.is_dir():
        folder = RunFolder.open(arguments.run)
        if arguments.workers is not None or arguments.folder is not None:
            raise FixedAtTheBeginning(
                f"{arguments.run} already holds a run, whose data is divided for {folder.config().workers} workers; "
                "give it without --workers and --folder, or give a TOML file to begin another run"
            )
        return folder
    settings = read_config(arguments.run)
    if arguments.workers is not None:
        settings["workers"] = arguments.workers
    config = configured(settings)
    if config.workers < 1:
        raise InvalidTrainingConfig(
            f"a distributed run needs workers, and {arguments.run} sets none; add `workers = 2`, or give --workers 2"
        )
    check_settings(config)
    return RunFolder.create(arguments.folder or Path("runs") / Path(config.model).stem, config)


def _prepared(folder: RunFolder, fresh: bool) -> Recipe:
    """What the run trains. Where that cannot be had, a run that was just made leaves its folder to the next try."""
    try:
        recipe = prepare(folder)
        check_run(recipe)
    except PCPError:
        if fresh:
            folder.discard()
        raise
    return recipe
