"""Verification of kernels from outside: run in a process of their own, judged against float64, on problems of their family or
beside their region."""

from pcp.planning.verification.admission import Admission as Admission
from pcp.planning.verification.admission import examined as examined
from pcp.planning.verification.admission import refused as refused
from pcp.planning.verification.process import CandidateProcess as CandidateProcess
from pcp.planning.verification.process import VerificationFailed as VerificationFailed
from pcp.planning.verification.verdict import Verdict as Verdict
from pcp.planning.verification.verify import verify as verify
