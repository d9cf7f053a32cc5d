"""Whose words are logged fills no disk."""

import logging

from pcp.training.display.log_bounds import LETTERS, LINES_A_SECOND, LINES_AT_ONCE, LogBounds


def test_lines_are_cut_and_those_that_come_too_fast_are_counted() -> None:
    clock, written = [0.0], list[str]()
    bounds = LogBounds(lambda: clock[0])

    def say(name: str, text: str, *arguments: object, error: bool = False) -> None:
        trace = (ValueError, ValueError("x"), None) if error else None
        record = logging.LogRecord(name, logging.WARNING, "", 0, text, arguments, trace)
        if bounds.filter(record):
            written.append(record.getMessage())

    for _ in range(100_000):
        say("pcp.noisy", "lease %d is given up: %s", 7, "x" * 10_000)
        clock[0] += 0.001
    allowed = LINES_AT_ONCE + 100 * LINES_A_SECOND
    assert 0.9 * allowed < len(written) <= allowed + 1
    assert max(map(len, written)) < LETTERS + 100
    counted = sum(int(each[1:].split()[0]) for each in written if each.startswith("("))
    written.clear()
    say("pcp.quiet", "100 % of it")
    assert written == ["100 % of it"]
    say("pcp.noisy", "a bug", error=True)
    assert written[1].endswith("lines were left out here) a bug"), "errors of PCP's own are written"
    assert counted + int(written[1][1:].split()[0]) + allowed >= 100_000
