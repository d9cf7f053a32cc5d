"""`pcp shepherd`: coordinate a distributed run."""

import argparse
import logging
import socket
import sys
from pathlib import Path

from pcp.backends import default_device
from pcp.backends.host_memory import take_one_heap
from pcp.cli.keys import check_lifetime, identity_of
from pcp.cli.lasting import lasting_streams
from pcp.cli.local_run import address_of
from pcp.cli.status import add_web_arguments, address, page_beside
from pcp.distributed.algorithm_choice import check_settings
from pcp.distributed.coordinator import EventLogWriteFailed
from pcp.distributed.shepherd.disk import NoRoom
from pcp.distributed.shepherd.host import RunFailed
from pcp.distributed.shepherd.new_run import check_run
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.shepherd.serving import PATIENCE_SECONDS, serve
from pcp.distributed.supervisor import end_with_parent
from pcp.distributed.wire import CannotListen, PortInUse
from pcp.errors import PCPError
from pcp.training.display.bounded import Bounded
from pcp.training.display.fleet import Fleet
from pcp.training.display.live_display import LiveDisplay
from pcp.training.display.metrics import FanOut, JSONLinesFile, JSONLinesStream, MetricSink, Stamped
from pcp.training.recipes.config import InvalidTrainingConfig, is_in_pairs, read_config
from pcp.training.recipes.model_folder import holds_transformers_model
from pcp.training.recipes.prepare import configured, prepare, write_trained_weights
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder

log = logging.getLogger("pcp.cli.shepherd")


class FixedAtTheBeginning(PCPError):
    """A setting was given for a run that already exists, which cannot change it."""


DESCRIPTION = {
    "description": "Coordinate a distributed run: give data to Workers, merge their updates, keep the parameters.",
    "epilog": """\
RUN is either a TOML file of settings, which begins a new run, or the folder of a run, which continues where it stopped.
The settings are those of `pcp train`; `pcp train --help` explains them. The settings workers, algorithm, inner_steps,
fragments, delay, mixing, outer_learning_rate, outer_momentum, gossip_rate, upload, download, merge, quorum, shares, artifacts,
audit_rate and audit_tolerance concern distributed runs.
A table [wire] limits what strangers and single Workers may take, such as connections_per_worker and messages_per_second.

The Shepherd needs little computing power; run it on a machine that Workers can reach and that stays up. Workers may join and
leave at any time; every batch of the run is merged exactly once. Each Worker needs its own key file:
pcp keys worker NAME --run FOLDER.

The folder of the run holds its whole state. To continue after the Shepherd was stopped or killed, start it again with that
folder; it continues from the last outer step and listens on the same address.

It shows the run as a live table, on a terminal, and the line to paste elsewhere to join; elsewhere plain lines, and with
--json one JSON object per line. --web serves the same as a page (pcp status --help says more):
pcp shepherd run.toml --web 127.0.0.1:8080. From outside, `pcp status FOLDER` shows it, also when it is finished or dead.
The file FOLDER/paused pauses the run for as long as it is there: what is out may be delivered, nothing new is given.

exit codes: 0 the run is complete; 1 it failed and may continue after a restart (for example a full disk);
2 an argument or a file is wrong; 130 and 143 interrupted

examples:
  pcp shepherd run.toml --workers 8 --listen 0.0.0.0:7433     a new run, for Workers on other machines
  pcp keys worker alice --run runs/gpt2-nano                  a key for one of them
  pcp shepherd runs/gpt2-nano                                 continue after an interruption

With model = "loss.pcp", weights = "weights.safetensors" and data = "samples.npz" in run.toml, the run
trains a loss from a file
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
        help="Workers that a new run waits for, and by which its steps are multiplied; any number may join, at any time "
        "(default: from RUN, else 1)",
    )
    parser.add_argument(
        "--run",
        dest="folder",
        metavar="FOLDER",
        type=Path,
        help="where a new run is kept (default: runs/MODEL)",
    )
    parser.add_argument(
        "--listen",
        type=address,
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="address to listen on; port 0 takes the port of the last time, or a free one",
    )
    add_web_arguments(parser)
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.supervised:
        end_with_parent()
    take_one_heap()
    folder = _folder(arguments)
    recipe = _prepared(folder, fresh=not arguments.run.is_dir())
    with lasting_streams():
        return _coordinate(arguments, folder, recipe)


def _coordinate(arguments: argparse.Namespace, folder: RunFolder, recipe: Recipe) -> int:
    host, port = arguments.listen
    credentials, revocations, sign = identity_of(folder, host)
    warnings = check_lifetime(folder, credentials)
    hint: list[str] = []
    shown: MetricSink = JSONLinesStream()
    if not arguments.json:
        config = folder.config()
        fleet = Fleet(folder.path.name, config.steps, in_pairs=is_in_pairs(config))
        shown = LiveDisplay(fleet, hint=lambda: hint[-1] if hint else "")
    # The supervisor before this one may have been killed a moment ago, and its Shepherd be on its way out.
    patience = PATIENCE_SECONDS if arguments.supervised else 0.0
    with (
        page_beside(folder, arguments),
        Bounded(Stamped(FanOut([JSONLinesFile(folder.metrics_file), shown]))) as sink,
    ):
        shepherd = Shepherd(folder, recipe, credentials, revocations, sink.write, patience, sign)

        def announce(address: str) -> None:
            hint.append(how_to_join(folder, address))
            print(f"pcp: the Shepherd of {folder.path} listens on {address}", file=sys.stderr, flush=True)
            print(f"pcp: {hint[-1]}", file=sys.stderr, flush=True)
            sink.write({"event": "listening", "address": address, "run": str(folder.path)})
            for warning in warnings:
                log.warning("%s", warning)
                sink.write({"event": "trouble", "message": warning})

        try:
            number = serve(shepherd, address_of(folder), host, port, announce)
        except (PortInUse, CannotListen) as error:
            raise type(error)(f"{error}. To go on: pcp shepherd {folder.path} --listen HOST:PORT") from None
        except (EventLogWriteFailed, NoRoom, RunFailed) as error:
            print(f"pcp: {error}", file=sys.stderr)
            sink.write({"event": "ended", "complete": False, "reason": str(error)})
            return 1
        except Exception as error:
            sink.write(
                {
                    "event": "ended",
                    "complete": False,
                    "reason": f"failed: {type(error).__name__}: {error}"[:300],
                }
            )
            raise
        reason = "interrupted" if number else "the run is complete"
        sink.write({"event": "ended", "complete": not number, "reason": reason})
    if number:
        print(f"pcp: interrupted; pcp shepherd {folder.path} continues it", file=sys.stderr)
        return 128 + number
    write_trained_weights(folder, recipe)
    return 0


def how_to_join(folder: RunFolder, address: str) -> str:
    """The line to paste elsewhere; of an address that is for this machine only it says how to have another."""
    host, _, port = address.rpartition(":")
    key = f"pcp keys worker NAME --run {folder.path}"
    if host in ("0.0.0.0", "[::]"):
        host = socket.gethostname()
    is_local = host in ("127.0.0.1", "[::1]", "localhost")
    tail = "; for other machines: --listen 0.0.0.0:7433" if is_local else ""
    return f"join with: {key}; pcp worker --connect {host}:{port} --key NAME.pem{tail}"


def _folder(arguments: argparse.Namespace) -> RunFolder:
    """The folder of the run that the arguments ask for, made or opened."""
    if arguments.run.is_dir():
        folder = RunFolder.open(arguments.run)
        if arguments.workers is not None or arguments.folder is not None:
            raise FixedAtTheBeginning(
                f"{arguments.run} already holds a run, which is planned for {folder.config().workers} workers; "
                "give it without --workers and --run, or give a TOML file to begin another run"
            )
        return folder
    settings = {"device": default_device()} | read_config(arguments.run)
    if arguments.workers is not None:
        settings["workers"] = arguments.workers
    settings.setdefault("workers", 1)
    config = configured(settings)
    if config.workers < 1:
        raise InvalidTrainingConfig(
            f"workers is {config.workers}; expected at least 1 for a distributed run, or no such setting: any number may join"
        )
    check_settings(config)
    path = arguments.folder or Path("runs") / Path(config.model).stem
    return RunFolder.create(path, config, continuing=f"pcp shepherd {path}")


def _prepared(folder: RunFolder, fresh: bool) -> Recipe:
    """What the run trains. Where that cannot be had, a run that was just made leaves its folder to the next try."""
    try:
        if holds_transformers_model(Path(folder.config().model)):
            from pcp.importers.training_folder import bring_model  # what it imports takes a moment

            bring_model(folder)
        recipe = prepare(folder)
        check_run(recipe)
    except PCPError:
        if fresh:
            folder.discard()
        raise
    return recipe
