"""How commands read their words, and what they say of those that they do not take."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from pcp.errors import PCPError, nearest


class WrongCommandLine(PCPError):
    """Words that a command does not take."""


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that names the option or the choice that was probably meant, and shows no usage with it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        named.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **named)
        self._positionals.title = "arguments"
        self.register("type", int, whole)
        self.register("type", float, number)

    def error(self, message: str) -> NoReturn:
        """Raises WrongCommandLine."""
        required = message.removeprefix("the following arguments are required: ")
        if required != message:
            message = f"{self.prog} needs {', '.join(map(self._told, required.split(', ')))}"
        raise WrongCommandLine(f"{message}; `{self.prog} --help` shows what it takes")

    def _told(self, name: str) -> str:
        """A missing argument, and what it may be."""
        for action in self._actions:
            if argparse._get_action_name(action) == name and action.choices is not None:
                return f"{name} (one of {', '.join(map(str, action.choices))})"
        return name

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As `argparse` does.

        Raises:
            WrongCommandLine: a word has no place.
        """
        first = next(iter(args or ()), "")
        if first.startswith("-") and first not in self._option_string_actions:
            self._refuse([first])
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            self._asked_for(parsed)._refuse(left)
        return parsed

    def _asked_for(self, parsed: argparse.Namespace) -> "Parser":
        """The parser of the command that was asked for."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                chosen = action.choices.get(str(getattr(parsed, action.dest, None)))
                if isinstance(chosen, Parser):
                    return chosen._asked_for(parsed)
        return self

    def _refuse(self, left: Sequence[str]) -> NoReturn:
        known = [name for action in self._actions for name in action.option_strings]
        option = next((word.partition("=")[0] for word in left if word.startswith("-")), None)
        if option is not None:
            self.error(f"there is no option {option}{nearest(option, known)}")
        self.error(f"{left[0]!r} is one argument too many")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            what = argparse._get_action_name(action) or "the argument"
            raise argparse.ArgumentError(
                None, f"{what} is {value!r}{nearest(value, choices)}; choose one of {', '.join(choices)}"
            )


def whole(text: str) -> int:
    """A whole number of a command line."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def number(text: str) -> float:
    """A number of a command line."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; write one as 0.01 or 1e-2") from None
