"""`pcp chat`: talk with a model in the terminal."""

import argparse

from pcp.cli.chat.talk import talk
from pcp.cli.serve import add_model_arguments
from pcp.serving.opening import Settings, opened

DESCRIPTION = {
    "description": "Talk with a model in the terminal.",
    "epilog": """\
MODEL is what `pcp serve` takes, and answers by the same engine. A model without a chat template needs --chat-template; `plain`
writes a line with the role above each text.

What you type is a message, until the end of the line. /new begins anew, /again has the last answer drawn again, and
/end or Ctrl-D ends. Ctrl-C stops an answer. Where the input is no terminal, each line of it is a message.

examples:
  pcp chat my-model
  pcp chat my-model --system "Answer in one sentence." --temperature 0
  pcp chat runs/gpt2-nano --chat-template plain --tokens 100
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("--system", default="", help="what the model is told before the conversation")
    parser.add_argument("--tokens", type=int, help="most tokens of an answer; what fits if not given")
    parser.add_argument("--temperature", type=float, help="0 always takes the most likely token")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal answers")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    settings = Settings(
        "",
        arguments.device,
        arguments.weights,
        arguments.tolerance,
        rows=1,
        chat_template=arguments.chat_template,
        cache=arguments.cache,
    )
    _, model = opened(arguments.model, settings)
    try:
        talk(model, arguments)
    finally:
        model.engine.close(drain=False)
        model.close()
    return 0
