"""Reading pip's configuration."""

import logging
import sys
from pathlib import Path

import pytest

from pcp.training.data import pip_configuration
from pcp.training.data.pip_configuration import (
    PipConfiguration,
    parse_pip_configuration,
    read_pip_configuration,
)


def test_environment_wins_over_install_section_over_global() -> None:
    listing = "\n".join(
        [
            ":env:.index-url='http://three.invalid/simple'",
            "global.index-url='http://one.invalid/simple'",
            "global.extra-index-url='http://a.invalid http://b.invalid'",
            "global.timeout='60'",
            "install.index-url='http://two.invalid/simple'",
            "install.find-links='/one\\n/two'",
            "download.index-url='http://four.invalid/simple'",
            "global.cert='/etc/ssl/some.crt'",
            "global.trusted-host='a.invalid'",
            "global.no-index='true'",
            "global.proxy='http://proxy.invalid:80'",
        ]
    )
    assert parse_pip_configuration(listing) == PipConfiguration(
        index_url="http://three.invalid/simple",
        extra_index_urls=("http://a.invalid", "http://b.invalid"),
        find_links=("/one", "/two"),
        no_index=True,
        trusted_hosts=("a.invalid",),
        certificate="/etc/ssl/some.crt",
        proxy="http://proxy.invalid:80",
        timeout_seconds=60.0,
    )


def test_nothing_configured() -> None:
    assert parse_pip_configuration("") == PipConfiguration()


def test_timeout_that_is_no_number_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert parse_pip_configuration("global.timeout='soon'").timeout_seconds == 15.0
    assert "pip's timeout 'soon' is not a number of seconds" in caplog.text


def test_configuration_file_and_environment_are_read_through_pip(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = http://file.invalid/simple\nextra-index-url = http://x.invalid\n")
    environment = {
        "PIP_CONFIG_FILE": str(file),
        "PIP_EXTRA_INDEX_URL": "http://y.invalid",
        "HOME": str(tmp_path),
    }
    configuration = read_pip_configuration(environment)
    assert configuration.index_url == "http://file.invalid/simple"
    assert configuration.extra_index_urls == ("http://y.invalid",)


@pytest.mark.parametrize("executable", ["/nonexistent/python", "/bin/false"])
def test_without_pip_the_environment_counts_and_a_warning_tells(
    executable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    environment = {"PIP_INDEX_URL": "http://one.invalid/simple", "PIP_DEFAULT_TIMEOUT": "7", "OTHER": "x"}
    with caplog.at_level(logging.WARNING):
        configuration = read_pip_configuration(environment)
    assert configuration == PipConfiguration(index_url="http://one.invalid/simple", timeout_seconds=7.0)
    assert "pip's configuration files are not read" in caplog.text
    assert caplog.records[0].name == pip_configuration.logger.name
