"""Signals wait for the end of a block that must not be torn, and only one of them does."""

import signal
import threading
from collections.abc import Iterator

import pytest

from pcp.training.interruption import uninterrupted


@pytest.fixture(autouse=True)
def _same_signal_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    signal.signal(number, signal.default_int_handler)
    done = []

    @uninterrupted()
    def block() -> None:
        signal.raise_signal(number)
        done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["the rest"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_a_second_signal_does_not_wait() -> None:
    done = []

    @uninterrupted()
    def block() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("after one")
        signal.raise_signal(signal.SIGINT)
        done.append("after two")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["after one"]


def test_an_exception_of_the_block_comes_first() -> None:
    @uninterrupted()
    def block() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_without_a_handler_is_left_alone() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with uninterrupted():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_hold_nothing_back() -> None:
    failures: list[BaseException] = []

    def block() -> None:
        try:
            with uninterrupted():
                assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert failures == []
