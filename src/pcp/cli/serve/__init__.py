"""`pcp serve`: a model behind addresses of HTTP."""

import argparse
import json
import sys
from pathlib import Path

from pcp.backends import default_device
from pcp.cli.serve.dry_run import tell
from pcp.cli.serve.key_file import read_keys
from pcp.errors import PCPError
from pcp.models.paged import FORMS as CACHES
from pcp.nn.quantised import FORMS
from pcp.training.extras import import_extra

DESCRIPTION = {
    "description": "Serve a model under the APIs that clients know: Completions, Chat, Responses, Messages.",
    "epilog": """\
MODEL is the folder of a run that `pcp train` made, or of a model that the library transformers saved, or a GGUF file: what
`pcp generate` takes. It needs the extra `serve`.

  http://HOST:PORT/v1     what clients of OpenAI's are given as base_url
  http://HOST:PORT        what clients of Anthropic's are given
  /health, /metrics       for who watches it; Prometheus reads the second

It listens at once, and says so; until the model is ready, /health answers 503 with "starting" and what is done meanwhile.

--dry-run says whether the model fits in the memory of the device, how fast it can be at most, and how long a first token
takes at least, and serves nothing.

--key-file names a file with a key on each line, one of which a request must bring. Keys and texts go in the clear: for other
machines put a server with TLS before it.

SIGTERM and SIGINT end it gracefully: it takes no more requests, finishes those that it has begun, and after --drain-seconds
gives up the rest; a second signal ends it at once.

exit codes: 0 it was told to end, and did; 2 an argument is wrong, or the model cannot be served

examples:
  pcp serve my-model --port 8000
  pcp serve my-model --weights int8 --rows 16 --key-file keys
  pcp serve my-model --dry-run
  openssl rand -hex 32 > keys; pcp serve runs/my-model --host 0.0.0.0 --key-file keys
""",
}

PACKAGES = ("starlette", "uvicorn", "prometheus_client", "jinja2")


class InvalidServing(PCPError):
    """A number of rows or requests, or a time, that makes no sense."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    add_model_arguments(parser)
    _add_guessing(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="where to listen; 0.0.0.0 for other machines, too"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument(
        "--name", default="", help="what clients call the model; that of its folder if not given"
    )
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="a key on each line; requests bring one"
    )
    parser.add_argument("--rows", type=int, default=8, help="texts that are computed at once")
    parser.add_argument(
        "--requests", type=int, default=256, help="that are answered or wait; more are refused"
    )
    parser.add_argument(
        "--drain-seconds", type=float, default=30.0, help="for answers that have begun, at the end"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say whether it fits and how fast it is, and end"
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments that say how a model is run."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="folder of a run, or of a model of transformers, or a GGUF file",
    )
    parser.add_argument("--device", default=default_device(), help="where the model runs")
    parser.add_argument(
        "--weights", choices=FORMS, default="", help="store matrices in fewer bits; as they are if not given"
    )
    parser.add_argument(
        "--cache",
        choices=CACHES,
        default="",
        help="keep keys and values in it; as it is computed if not given",
    )
    parser.add_argument(
        "--tolerance", type=float, metavar="T", help="search for the fastest way to run it within this error"
    )
    parser.add_argument(
        "--chat-template",
        default="",
        metavar="FILE",
        help="another than the model's; `plain` names each role",
    )


def _add_guessing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--draft",
        type=Path,
        metavar="MODEL",
        help="a smaller model of the same tokens that guesses; answers stay the same",
    )
    parser.add_argument(
        "--guesses",
        type=int,
        default=0,
        metavar="N",
        help="tokens guessed at once, from the text itself without --draft",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if (
        arguments.rows < 1
        or arguments.requests < 1
        or arguments.guesses < 0
        or not 0 <= arguments.drain_seconds < 1e6
    ):
        raise InvalidServing(
            f"--rows is {arguments.rows}, --requests {arguments.requests}, --guesses {arguments.guesses} and --drain-seconds "
            f"{arguments.drain_seconds:g}; expected at least 1, 1, 0 and 0"
        )
    if not 0 <= arguments.port < 1 << 16:
        raise InvalidServing(f"--port is {arguments.port}; expected from 0 to 65535")
    if arguments.dry_run:
        return tell(arguments)
    for package in PACKAGES:
        import_extra(package, "serve", "A server")
    keys = [] if arguments.key_file is None else read_keys(arguments.key_file)
    from pcp.dashboard.serving import is_loopback
    from pcp.distributed.wire.sockets import format_address, listen
    from pcp.serving.application import Application
    from pcp.serving.measures import Measures
    from pcp.serving.opening import Settings, opened
    from pcp.serving.server import serve
    from pcp.serving.starting import Waiting, answering

    listener, waiting = listen(arguments.host, arguments.port), Waiting()
    address = format_address(listener.getsockname()[:2])
    print(
        f"pcp: reading {arguments.model}; http://{address}/health says how far it is",
        file=sys.stderr,
        flush=True,
    )

    def prepared(count: int, of: int) -> None:
        waiting.doing = f"compiling, {count} of {of} programs"
        _tell_prepared(count, of)

    settings = Settings(
        arguments.name,
        arguments.device,
        arguments.weights,
        arguments.tolerance,
        arguments.rows,
        arguments.chat_template,
        prepared,
        arguments.cache,
        arguments.draft,
        arguments.guesses,
    )
    with answering(listener, waiting):
        _, model = opened(arguments.model, settings)
    facts = {
        "device": arguments.device,
        "weights": arguments.weights or "as they are",
        "tolerance": str(arguments.tolerance),
    }
    measures = Measures(model.name, model.engine.counts, facts)
    application = Application(model, measures, keys, arguments.requests)
    if not keys and not is_loopback(arguments.host):
        print(
            f"pcp: whoever reaches {arguments.host} can use this server; --key-file asks for keys",
            file=sys.stderr,
        )
    if model.template is None:
        print(f"pcp: only /v1/completions answers: {model.no_template}", file=sys.stderr)

    def ready(address: str) -> None:
        print(f"pcp: {model.name} is served at http://{address}/v1", file=sys.stderr, flush=True)
        if arguments.json:
            print(json.dumps({"event": "serving", "model": model.name, "address": address}), flush=True)

    try:
        serve(application, model, listener, arguments.host, arguments.drain_seconds, ready)
    finally:
        model.engine.close(drain=False)
        model.close()
    return 0


def _tell_prepared(count: int, of: int) -> None:
    """A line on a terminal that counts; elsewhere one line at the beginning."""
    if sys.stderr.isatty():
        end = "\n" if count == of else ""
        print(f"\rpcp: compiling, {count} of {of} programs", end=end, file=sys.stderr, flush=True)
    elif count == 0:
        print(f"pcp: compiling {of} programs", file=sys.stderr, flush=True)
