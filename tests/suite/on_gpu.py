"""What `make test-gpu` adds to pytest: it ends at once without a GPU, and says in one line for each family what was verified.

A family of which nothing ran is a failure: a test that skips itself everywhere verifies nothing.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

GENERATION = "sm_80"
"""What kernels for NVIDIA GPUs need."""

FAMILIES = "tests/kernels/gpu"
"""Each file in it is a family; other tests are told by their room."""

OUTCOMES = ("passed", "failed", "error", "skipped")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Without a GPU there is nothing to verify."""
    if hasattr(session.config, "workerinput"):
        return
    # It imports numpy, which reads variables that tests/conftest.py sets.
    from pcp.kernels.features import lacking

    platform = os.environ.get("PCP_TEST_PLATFORM", "cpu")
    reason = lacking((GENERATION,), "cuda") if platform == "cuda" else f"PCP_TEST_PLATFORM is {platform}"
    if reason:
        pytest.exit(
            f"make test-gpu: there is no NVIDIA GPU of compute capability 8.0 or more here: {reason}; expected one, and a jax "
            "that finds it: python -c 'import jax; print(jax.devices())'",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


def family_of(node: str) -> str:
    """That of a test, from its identifier."""
    file = PurePosixPath(node.partition("::")[0])
    if file.is_relative_to(FAMILIES):
        return f"gpu/{file.stem.removeprefix('test_')}"
    return file.parts[1].removesuffix(".py") if len(file.parts) > 1 else file.stem


def counted(reports: Mapping[str, list[str]]) -> dict[str, Counter[str]]:
    """How many tests of each family had which outcome, from the identifiers of tests by outcome."""
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome, nodes in reports.items():
        for node in nodes:
            families[family_of(node)][outcome] += 1
    return families


def line_of(family: str, counts: Mapping[str, int]) -> str:
    """What is said of a family."""
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts.get(outcome))
    return f"{verdict_of(counts):9}{family}: {told}"


def verdict_of(counts: Mapping[str, int]) -> str:
    """Verified, failed, or that nothing ran."""
    if counts.get("failed") or counts.get("error"):
        return "FAILED"
    return "verified" if counts.get("passed") else "NOT RUN"


def _outcomes(config: pytest.Config) -> dict[str, Counter[str]]:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    stats = {} if terminal is None else terminal.stats
    return counted({outcome: [each.nodeid for each in stats.get(outcome, ())] for outcome in OUTCOMES})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A line for each family, those that are not verified last."""
    families = _outcomes(config)
    terminalreporter.section("families")
    for family in sorted(families, key=lambda name: (verdict_of(families[name]) != "verified", name)):
        terminalreporter.line(line_of(family, families[family]))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A family of which nothing ran fails the whole."""
    families = _outcomes(session.config)
    is_silent = any(
        verdict_of(counts) == "NOT RUN" for name, counts in families.items() if name.startswith("gpu/")
    )
    if is_silent and exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
