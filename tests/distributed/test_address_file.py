"""The file in which a Shepherd says where it listens."""

import threading
from pathlib import Path

import pytest

from pcp.distributed.address_file import NoAddress, read_address, wait_for_address, write_address


@pytest.mark.parametrize(("host", "text"), [("127.0.0.1", "127.0.0.1:7433"), ("::1", "[::1]:7433")])
def test_an_address_comes_back(tmp_path: Path, host: str, text: str) -> None:
    path = tmp_path / "address.json"
    write_address(path, host, 7433)
    assert read_address(path) == (host, 7433)
    assert wait_for_address(path, 0.0) == text


def test_a_worker_waits_for_the_file(tmp_path: Path) -> None:
    path = tmp_path / "address.json"
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(wait_for_address(path, 20.0)))
    waiting.start()
    write_address(path, "127.0.0.1", 9)
    waiting.join(20.0)
    assert found == ["127.0.0.1:9"]


def test_a_file_that_never_comes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        NoAddress,
        match=r"address\.json does not hold the address of a Shepherd: FileNotFoundError.*check that a Shepherd runs",
    ):
        wait_for_address(tmp_path / "address.json", 0.1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"host": "h"}',
        '{"host": 1, "port": 2}',
        '{"host": "h", "port": 0}',
        '{"host": "h", "port": "9"}',
    ],
)
def test_a_file_with_something_else_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "address.json"
    path.write_text(text)
    with pytest.raises(NoAddress, match="does not hold the address of a Shepherd"):
        read_address(path)
