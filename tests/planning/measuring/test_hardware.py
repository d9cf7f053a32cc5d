"""The fingerprint is that of this machine, the same each time, and another for whatever else speed depends on."""

import os
import re

from pcp.backends import Target
from pcp.planning.measuring.hardware import Hardware, hardware_of, versions


def test_this_machine() -> None:
    target = Target.of("cpu:0")
    found = hardware_of(target)
    assert found == hardware_of(target)
    assert found.name.endswith(f", {len(os.sched_getaffinity(0))} cores")
    assert re.fullmatch("[0-9a-f]{16}", found.digest)
    assert found.digest == hardware_of(target).digest
    assert "sse" in found.facts or "asimd" in found.facts


def test_every_fact_is_in_the_digest() -> None:
    digests = {
        Hardware(name, facts).digest
        for name, facts in [
            ("EPYC", "avx2"),
            ("EPYC", "avx2 avx512f"),
            ("EPYC, 2 cores", "avx2"),
            ("EPYC\navx2", ""),
        ]
    }
    assert len(digests) == 4


def test_versions_name_what_generates_code() -> None:
    assert re.fullmatch(r"jaxlib \S+, planetary-compute-protocol \S+, Python \S+, rules \d+", versions())
