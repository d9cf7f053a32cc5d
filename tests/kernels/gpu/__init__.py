"""Kernels for NVIDIA GPUs: interpreted or lowered here, run where PCP_TEST_PLATFORM=cuda says that there is one."""
