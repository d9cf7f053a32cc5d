"""Finding where a package's source archive lies, in the places the user's pip is configured for."""

import logging
import ssl
from typing import cast

import httpx2
from unearth import Link, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers import Fetcher
from unearth.fetchers.sync import PyPIClient

from pcp.training.data.pip_configuration import PipConfiguration
from pcp.training.data.published_archive import ArchiveUnavailable, SourceArchive

logger = logging.getLogger("pcp.training.data.package_index")


def open_client(configuration: PipConfiguration) -> PyPIClient:
    """Open an HTTP client with the certificates, hosts, proxy and time limit that pip would use.

    Raises:
        ArchiveUnavailable: the configured file of certificates cannot be read.
    """
    verify: ssl.SSLContext | bool = True
    if configuration.certificate is not None:
        try:
            verify = ssl.create_default_context(cafile=configuration.certificate)
        except OSError as error:
            raise ArchiveUnavailable(
                f"pip's configuration names the certificate file {configuration.certificate!r}, which cannot be "
                f"read ({error}). Correct pip's `cert` setting; `pip config list` shows it."
            ) from error
    client = PyPIClient(
        verify=verify,
        trusted_hosts=configuration.trusted_hosts,
        timeout=configuration.timeout_seconds,
        follow_redirects=True,
        proxy=configuration.proxy,
    )
    # Prompting for a password would hang a run without a terminal.
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=index_urls(configuration))
    return client


def index_urls(configuration: PipConfiguration) -> tuple[str, ...]:
    """List the indexes to search; the default one is whatever the finder library's own default is."""
    if configuration.no_index:
        return ()
    default = str(PackageFinder().sources[0]["url"])
    return (configuration.index_url or default, *configuration.extra_index_urls)


def find_archive(archive: SourceArchive, configuration: PipConfiguration, client: PyPIClient) -> list[Link]:
    """Find every place that offers the archive, those that advertise its digest first.

    The search ends at the first place with the right digest. A place that cannot be asked is logged and
    passed over.

    Returns:
        At least one link to a file of that name.

    Raises:
        ArchiveUnavailable: no place has it.
    """
    # The client is one: it only takes wider argument types than the finder's protocol spells out.
    session = cast(Fetcher, client)
    finders = [PackageFinder(session, find_links=[place]) for place in configuration.find_links]
    finders += [PackageFinder(session, index_urls=[url]) for url in index_urls(configuration)]
    links: list[Link] = []
    failures: list[str] = []
    for finder in finders:
        try:
            packages = finder.find_all_packages(archive.package, allow_yanked=True)
            named = [package.link for package in packages if package.link.filename == archive.filename]
        except (httpx2.HTTPError, OSError, ValueError) as error:
            place = Link(str(finder.sources[0]["url"])).redacted
            logger.warning("%s could not be searched for %s: %s", place, archive.filename, error)
            failures.append(f"{type(error).__name__}: {error}")
            continue
        exact = [link for link in named if (link.hash_option or {}).get("sha256") == [archive.sha256]]
        if exact:
            return exact
        links += named
    if not links:
        reasons = f" Failures: {'; '.join(failures)}." if failures else ""
        raise ArchiveUnavailable(
            f"None of the {len(finders)} package indexes that pip is configured for has {archive.filename}.{reasons}"
        )
    return links
