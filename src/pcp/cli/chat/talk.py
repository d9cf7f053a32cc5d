"""A conversation in the terminal: what is typed, and what is answered."""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator

from pcp.inference.request import Request, Stream
from pcp.serving.model import ServedModel
from pcp.serving.refusals import ContextExceeded, Refused


def talk(model: ServedModel, arguments: argparse.Namespace) -> None:
    """Answer what is typed until it ends; the arguments are those of the command."""
    start = [{"role": "system", "content": arguments.system}] if arguments.system else []
    said = list(start)
    seed = arguments.seed
    for line in _lines(arguments.json):
        if line == "/end":
            return
        if line == "/new":
            said = list(start)
            continue
        if line == "/again":
            while said and said[-1]["role"] == "assistant":
                said.pop()
            seed += 1
        elif line:
            said.append({"role": "user", "content": line})
        if not said or said[-1]["role"] != "user":
            continue
        try:
            stream = _asked(model, said, arguments, seed)
        except Refused as refused:
            said.pop()
            anew = "; /new begins anew" if isinstance(refused, ContextExceeded) else ""
            print(f"pcp: {refused}{anew}", file=sys.stderr)
            continue
        answer = _told(stream, quietly=arguments.json)
        said.append({"role": "assistant", "content": answer})
        if arguments.json:
            print(json.dumps({"role": "assistant", "content": answer}), flush=True)


def _lines(as_json: bool) -> Iterator[str]:
    """What is typed, line by line."""
    asks = "> " if sys.stdin.isatty() and not as_json else ""
    if asks:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # the arrows of a keyboard then bring lines back
    while True:
        try:
            yield input(asks).strip()
        except EOFError:
            return


def _asked(
    model: ServedModel, said: list[dict[str, str]], arguments: argparse.Namespace, seed: int
) -> Stream:
    prompt = model.tokens_of_messages(list(said), [], {}, "messages")
    count = model.count_for(prompt, arguments.tokens, "--tokens")
    given = {} if arguments.temperature is None else {"temperature": arguments.temperature}
    return model.engine.submit(Request(prompt, count, model.sampling(seed=seed, **given)))


def _told(stream: Stream, quietly: bool) -> str:
    """The answer, which is written as it comes; Ctrl-C stops it."""
    text = ""
    before = signal.signal(signal.SIGINT, lambda *_: stream.cancel())
    try:
        for piece in stream:
            text += piece.text
            if not quietly:
                # What a model writes moves no cursor and rings no bell.
                sys.stdout.write("".join(each for each in piece.text if each.isprintable() or each in "\n\t"))
                sys.stdout.flush()
    finally:
        signal.signal(signal.SIGINT, before)
    if stream.error is not None:
        raise stream.error
    if not quietly:
        sys.stdout.write("\n")
    return text
