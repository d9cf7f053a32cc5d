"""Asks a page of PCP for JSON."""

import json
import urllib.request
from typing import Any

from pcp.errors import PCPError
from pcp.training.display.metrics import restored

ANSWER_SECONDS = 10.0
LARGEST_ANSWER = 16 << 20


class NoAnswer(PCPError):
    """Nobody answers at an address, or not as a page of PCP does."""


def asked(url: str, expected: str, advice: str) -> dict[str, Any]:
    """What a page answers.

    Arguments:
        url: of the page.
        expected: a key that the answer has.
        advice: what to do where there is none.

    Raises:
        NoAnswer: there is none.
    """
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as stream:
            page = json.loads(stream.read(LARGEST_ANSWER))
    except (OSError, ValueError, RecursionError) as error:
        raise NoAnswer(f"no answer from {url}: {getattr(error, 'reason', error)}; {advice}") from None
    if not isinstance(page, dict) or expected not in page:
        raise NoAnswer(f"{url} does not answer as a page of PCP does: there is no {expected!r}; {advice}")
    answer: dict[str, Any] = restored(page)
    return answer


def base_of(address: str) -> str:
    """The beginning of the addresses of a page: `HOST:PORT` stands for `http://HOST:PORT`."""
    address = address.rstrip("/")
    return address if address.startswith(("http://", "https://")) else f"http://{address}"
