"""What a Shepherd and a Worker show may be lost; it ends nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"} | {
    "PYTHONPATH": str(Path(__file__).parents[2] / "src")
}
PROGRAM = """
import sys
from pcp.cli.lasting import lasting_streams

with lasting_streams():
    for number in range(3000):
        print(f"line {number}", flush=number % 2 == 0)
        print(f"word {number}", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("broken", ["full disk", "no reader"])
def test_a_process_outlives_who_reads_it(stream: str, broken: str) -> None:
    if broken == "full disk":
        if not Path("/dev/full").exists():
            pytest.skip("there is no /dev/full here")
        end = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, end = os.pipe()
        os.close(reader)
    other = "stderr" if stream == "stdout" else "stdout"
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=ENVIRONMENT,
        text=True,
        **{stream: end, other: subprocess.PIPE},  # type: ignore[call-overload]  # either way round
    )
    os.close(end)
    assert ended.returncode == 7
    if stream == "stdout":
        said = [line for line in ended.stderr.splitlines() if not line.startswith("word")]
        assert len(said) == 1
        assert "standard output lacks lines from here on" in said[0]
    else:
        assert ended.stdout.count("line") == 3000


def test_what_can_be_written_is_written() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 7
    assert ended.stdout.splitlines() == [f"line {number}" for number in range(3000)]
    assert ended.stderr.splitlines() == [f"word {number}" for number in range(3000)]
