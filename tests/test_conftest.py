"""The promises of conftest.py: a home directory of the tests' own, and the platform that was asked for."""

import os
from pathlib import Path

import pytest
from hypothesis import settings


def test_home_and_every_cache_lie_in_the_sessions_own_folder(test_home: Path) -> None:
    assert Path.home() == test_home
    assert test_home.name.startswith("pcp-test-home-")
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert Path(os.environ[variable]).is_relative_to(test_home)


def test_platform_is_cpu_unless_another_is_asked_for() -> None:
    platform = os.environ.get("PCP_TEST_PLATFORM", "cpu")
    assert os.environ["JAX_PLATFORMS"].split(",")[0] == platform
    assert os.environ["PCP_DEVICE"] == f"{platform}:0"


def test_property_tests_have_no_deadline() -> None:
    assert settings().deadline is None


def test_a_warning_is_an_error() -> None:
    import warnings

    with pytest.raises(UserWarning, match="unheeded"):
        warnings.warn("unheeded", stacklevel=1)
