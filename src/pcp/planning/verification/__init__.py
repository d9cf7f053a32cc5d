"""Verification of kernels from outside: run in a process of their own, judged against float64."""

from pcp.planning.verification.fault import Fault as Fault
from pcp.planning.verification.fault import Finding as Finding
from pcp.planning.verification.process import CandidateProcess as CandidateProcess
from pcp.planning.verification.process import VerificationFailed as VerificationFailed
from pcp.planning.verification.verdict import Verdict as Verdict
from pcp.planning.verification.verify import verify as verify
