"""Asking a model by the protocol of OpenAI's chat completions, within limits of time and bytes whatever comes back."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pcp.errors import PCPError

KEY = "PCP_ENDPOINT_KEY"
"""The environment variable that holds the endpoint's key, if it wants one."""
MOST_BYTES = 1 << 20
_CHUNK = 1 << 14
_LONGEST_WORDS = 200
_LOCAL = ("localhost", "127.0.0.1", "::1")


class InvalidEndpoint(PCPError):
    """An address that nothing can be asked at, or that a key must not be sent to."""


class EndpointFailed(PCPError):
    """An endpoint that does not answer, or not as it should."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an address.

    Arguments:
        url: up to `/v1`; `/chat/completions` is added to it.
        model: its name there.
        key: that is sent with each request; empty sends none.
        most_bytes: that an answer may have.

    Raises:
        InvalidEndpoint: the address is none, or a key would travel to another machine unencrypted.
    """

    url: str
    model: str = "default"
    key: str = ""
    most_bytes: int = MOST_BYTES

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            host, _ = parts.hostname, parts.port
            (host or "").encode("idna")
            parts.path.encode("ascii")
        except ValueError:
            parts, host = urlsplit(""), None
        if (
            parts.scheme not in ("http", "https")
            or not host
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise InvalidEndpoint(
                f"the endpoint {self.url!r} is no address; expected one such as http://127.0.0.1:8000/v1 or "
                "https://models.example/v1"
            )
        if not (self.key.isascii() and self.key.isprintable()):
            raise InvalidEndpoint(
                f"{KEY} holds something that no header can, a line's end or a letter with an accent; expected the key alone: "
                f"export {KEY}=$(cat FILE)"
            )
        if self.key and parts.scheme == "http" and host not in _LOCAL:
            raise InvalidEndpoint(
                f"{KEY} is set, and the endpoint {self.url} is another machine without encryption: everybody between could "
                "read the key; give an address that begins with https://, or unset it"
            )

    @staticmethod
    def of_environment(url: str, model: str, most_bytes: int = MOST_BYTES) -> "Endpoint":
        """An endpoint with the key that the environment holds, if it holds one."""
        return Endpoint(url, model, os.environ.get(KEY, ""), most_bytes)

    def ask(self, messages: Sequence[Mapping[str, str]], seconds: float) -> str:
        """What the model says to a conversation.

        Arguments:
            messages: each with `role` and `content`.
            seconds: after which the connection is cut, whatever has come until then.

        Raises:
            EndpointFailed: nobody answers, or with another status, too slowly, too much, or not as a model does.
        """
        body = json.dumps({"model": self.model, "messages": list(messages)}).encode()
        deadline = time.monotonic() + seconds
        connection = self._connection(max(0.1, seconds))

        def end() -> None:
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, end)  # a timeout of the socket begins anew with every byte
        timer.daemon = True
        timer.start()
        try:
            content = self._answer(connection, body, deadline)
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() >= deadline or isinstance(error, TimeoutError):
                raise EndpointFailed(f"{self.url} did not answer within {seconds:.3g} s") from None
            raise EndpointFailed(
                f"{self.url} does not answer: {_short(str(error) or type(error).__name__)}"
            ) from None
        finally:
            timer.cancel()
            connection.close()
        if time.monotonic() >= deadline:
            raise EndpointFailed(f"{self.url} did not answer within {seconds:.3g} s")
        return self._said(content)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=seconds, context=context)

    def _answer(self, connection: http.client.HTTPConnection, body: bytes, deadline: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        path = f"{urlsplit(self.url).path.rstrip('/')}/chat/completions"
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        content = b""
        while len(content) <= self.most_bytes and time.monotonic() < deadline:
            chunk = response.read1(min(_CHUNK, self.most_bytes + 1 - len(content)))
            if not chunk:
                break
            content += chunk
        if response.status != http.HTTPStatus.OK:
            words = _short(content.decode(errors="replace"))
            raise EndpointFailed(
                f"{self.url} answered with status {response.status} {_short(response.reason)}: {words}"
            )
        if len(content) > self.most_bytes:
            raise EndpointFailed(f"the answer of {self.url} has more than {self.most_bytes} bytes")
        return content

    def _said(self, content: bytes) -> str:
        try:
            said = json.loads(content)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            said = None
        if not isinstance(said, str):
            raise EndpointFailed(
                f"{self.url} answered {_short(content.decode(errors='replace'))!r}; expected JSON with "
                "choices[0].message.content"
            )
        return said.encode(errors="replace").decode()  # JSON may hold halves of characters, which no file can


def _short(text: str) -> str:
    line = " ".join(
        "".join(each if each.isprintable() else " " for each in text[: 4 * _LONGEST_WORDS]).split()
    )
    return line[:_LONGEST_WORDS]
