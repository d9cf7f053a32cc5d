"""Kernels for NVIDIA GPUs: interpreted or lowered here, run where PCP_TEST_PLATFORM=cuda says that there is one."""

import jaxlib.version
import pytest

from tests.conftest import PLATFORM

lowers_for_gpus = pytest.mark.skipif(
    PLATFORM != "cuda" and jaxlib.version.__version_info__ >= (0, 11),
    reason="from 0.11 on JAX lowers Triton's kernels only where there is a GPU",
)
