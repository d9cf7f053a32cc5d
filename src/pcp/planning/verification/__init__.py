"""Verification of kernels from outside: run in a process of their own, judged against float64, on every region that they claim
to compute."""

from pcp.planning.verification.verdict import Verdict as Verdict
from pcp.planning.verification.verdict import refused as refused
from pcp.planning.verification.verify import verify as verify
