"""What holds for every test: no file of the user's is touched, and a failing input can be had again."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.suite import share
from tests.suite.kept_builds import folder_of_builds, put_quick_compiler_first
from tests.suite.optional_packages import needs_optional
from tests.suite.times import OPTION, Times

# Set while this file is imported, because numpy and jax read them once, when a test file imports them.
# One thread per process in numpy's libraries: the suite runs one process per core.
PLATFORM = os.environ.get("PCP_TEST_PLATFORM", "cpu")
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1"
if version("jaxlib").startswith("0.10."):
    QUICKLY += (
        " --xla_cpu_use_fusion_emitters=false"  # half of what is left; later compilers have no such option
    )
os.environ["JAX_PLATFORMS"] = "cpu" if PLATFORM == "cpu" else f"{PLATFORM},cpu"
os.environ["PCP_DEVICE"] = f"{PLATFORM}:0"
# Left alone, XLA computes float32 products on NVIDIA GPUs in TF32, of 10 bits; what is tested here is float32.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
if PLATFORM == "cuda":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_triton_gemm=false"
if PLATFORM == "cpu" and not os.environ.get("PCP_TEST_OPTIMISED"):
    # Programs of tests run a few times on small arrays: compiling them takes the time, in JAX and in child processes, too.
    os.environ["XLA_FLAGS"] = " ".join([QUICKLY, os.environ.get("XLA_FLAGS", "")]).strip()
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

# Where the suite runs in the background its shell has made SIGINT ignored, which children inherit, and tests press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline fails on a busy machine. `ci` draws the same inputs in every run, `dev` goes on searching.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("PCP_HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

TEST_HOME = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this process, and those it starts, an empty home directory before any test file is imported."""
    home = Path(tempfile.mkdtemp(prefix="pcp-test-home-"))
    config.stash[TEST_HOME] = home
    os.environ["HOME"] = str(home)
    for variable, folder in {
        "XDG_CACHE_HOME": ".cache",
        "XDG_CONFIG_HOME": ".config",
        "XDG_DATA_HOME": ".local/share",
        "XDG_STATE_HOME": ".local/state",
    }.items():
        os.environ[variable] = str(home / folder)
    share.settle()
    # One folder of native builds serves every process of every run of the suite, and one compiler those of this run.
    if "PCP_TEST_BUILDS" not in os.environ:
        put_quick_compiler_first(home)
    builds = os.environ.setdefault("PCP_TEST_BUILDS", str(folder_of_builds(config, home)))
    (home / ".cache" / "pcp").mkdir(parents=True)
    (home / ".cache" / "pcp" / "native").symlink_to(builds)
    os.environ["MPLBACKEND"] = "agg"
    if config.getoption(OPTION):
        config.pluginmanager.register(Times(config.getoption(OPTION)))
    # Matplotlib takes seconds to list the fonts; one list serves every run of the suite.
    if (cache := getattr(config, "cache", None)) is not None:
        os.environ["MPLCONFIGDIR"] = str(cache.mkdir("matplotlib"))


def pytest_report_header() -> str:
    """How to repeat this run's choice of cases."""
    return f"share of wide tables: {share.VARIABLE}={os.environ[share.VARIABLE]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--only-optional",
        action="store_true",
        help="run only tests that need packages which `make install` does not bring",
    )
    parser.addoption(OPTION, type=Path, help="write the processor seconds of every file there")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not in this run's share as long; leave out what another run has, and what the tested device has not.

    Another run has what needs no optional packages; processors alone have what is marked `cpu`.
    """
    share.make_others_long(items)
    if config.getoption("only_optional"):
        config.hook.pytest_deselected(items=[item for item in items if not needs_optional(item)])
        items[:] = [item for item in items if needs_optional(item)]
    if PLATFORM != "cpu":
        left_out = pytest.mark.skip(reason=f"of processors alone: PCP_TEST_PLATFORM={PLATFORM}")
        for item in items:
            if item.get_closest_marker("cpu"):
                item.add_marker(left_out)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the home directory of this session."""
    shutil.rmtree(config.stash[TEST_HOME], ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def _old_objects_are_left_alone() -> None:
    """What earlier files have made and kept, millions of objects, is not looked through in every collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def test_home(pytestconfig: pytest.Config) -> Path:
    """The home directory of this test session: empty at its start, removed at its end."""
    return pytestconfig.stash[TEST_HOME]


@pytest.fixture
def small_is_deep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are cut into segments though they are so small that it is not worth it."""
    from pcp.rewrite.segments import segments

    monkeypatch.setattr("pcp.rewrite.segments.WORTHWHILE", 40)
    monkeypatch.setattr("pcp.rewrite.segments.LEAST_FLOPS", 0.0)
    segments.cache_clear()
    yield
    segments.cache_clear()
