"""Where the user's pip looks for packages, read from pip's own configuration and environment."""

import ast
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

logger = logging.getLogger("pcp.training.data.pip_configuration")

# Later sections win, as in `pip install`: the files' [global], then its own section, then the environment.
_SECTIONS = ("global", "install", ":env:")
_DEFAULT_TIMEOUT_SECONDS = 15.0
_TRUE = {"1", "true", "yes", "on", "y", "t"}


@dataclass(frozen=True, slots=True)
class PipConfiguration:
    """The part of pip's configuration that says where and how packages are fetched.

    Arguments:
        index_url: the index to use instead of the default one; None means the default one.
        extra_index_urls: further indexes, searched as well.
        find_links: folders or pages that hold archives.
        no_index: whether indexes are switched off and only `find_links` count.
        trusted_hosts: hosts whose certificate is not checked.
        certificate: a file of certificate authorities to trust instead of the system's.
        proxy: the proxy to go through; None leaves it to the environment.
        timeout_seconds: time to wait for a connection or for the next bytes.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    certificate: str | None = None
    proxy: str | None = None
    timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS


def read_pip_configuration(environment: Mapping[str, str] | None = None) -> PipConfiguration:
    """Read pip's configuration as `pip install` would see it.

    Where this Python has no pip, its configuration files are left out, with a warning, and the `PIP_...`
    variables of the environment alone are used.

    Arguments:
        environment: the environment variables; those of this process when None.
    """
    variables = dict(os.environ if environment is None else environment)
    listing = _list_with_pip(variables)
    return parse_pip_configuration(_list_environment(variables) if listing is None else listing)


def parse_pip_configuration(listing: str) -> PipConfiguration:
    """Read the output of `pip config list`: lines of `section.key='value'`.

    Arguments:
        listing: the lines; those of other sections and unknown keys are ignored.
    """
    values: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        name, equals, quoted = line.partition("=")
        section, dot, key = name.strip().rpartition(".")
        if equals and dot and section in values:
            values[section][key] = str(ast.literal_eval(quoted.strip()))
    merged = {key: value for section in _SECTIONS for key, value in values[section].items()}
    return PipConfiguration(
        index_url=merged.get("index-url") or None,
        extra_index_urls=tuple(merged.get("extra-index-url", "").split()),
        find_links=tuple(merged.get("find-links", "").split()),
        no_index=merged.get("no-index", "").strip().lower() in _TRUE,
        trusted_hosts=tuple(merged.get("trusted-host", "").split()),
        certificate=merged.get("cert") or None,
        proxy=merged.get("proxy") or None,
        timeout_seconds=_seconds(merged.get("timeout") or merged.get("default-timeout")),
    )


def _seconds(text: str | None) -> float:
    if text is None:
        return _DEFAULT_TIMEOUT_SECONDS
    try:
        return float(text)
    except ValueError:
        logger.warning(
            "pip's timeout %r is not a number of seconds; %s s is used", text, _DEFAULT_TIMEOUT_SECONDS
        )
        return _DEFAULT_TIMEOUT_SECONDS


def _list_with_pip(variables: Mapping[str, str]) -> str | None:
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(
            command, env=dict(variables), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning(
            "pip's configuration files are not read: %s does not run: %s", " ".join(command), error
        )
        return None
    if done.returncode != 0:
        logger.warning("pip's configuration files are not read: %s", done.stderr.strip() or "pip failed")
        return None
    return done.stdout


def _list_environment(variables: Mapping[str, str]) -> str:
    lines = []
    for name, value in variables.items():
        if name.startswith("PIP_"):
            lines.append(f":env:.{name[4:].lower().replace('_', '-')}={value!r}")
    return "\n".join(lines)
