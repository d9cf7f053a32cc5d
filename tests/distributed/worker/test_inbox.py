"""What reaches a trainer from another thread."""

import threading

from pcp.distributed.messages import Blob, Outcome
from pcp.distributed.runtime import finished
from pcp.distributed.worker.effects import Adopt
from pcp.distributed.worker.training.inbox import Inbox

BLOB = Blob(b"b" * 32, 5)
ADOPT = Adopt(7, 1, 3, 2, BLOB, True)


def test_what_is_there_is_taken_once() -> None:
    inbox = Inbox()
    inbox.adopt(ADOPT)
    assert finished(inbox.wait_for(7, 1, 3, lambda: True)) == ADOPT
    assert finished(inbox.wait_for(7, 1, 3, lambda: True)) is None


def test_who_waits_gets_what_comes() -> None:
    inbox, asked = Inbox(), threading.Event()

    def given_up() -> bool:
        asked.set()
        return False

    threading.Thread(target=lambda: asked.wait(10.0) and inbox.adopt(ADOPT)).start()
    assert finished(inbox.wait_for(7, 1, 3, given_up)) == ADOPT


def test_fragments_of_other_leases_are_forgotten() -> None:
    inbox = Inbox()
    inbox.adopt(ADOPT)
    inbox.forget_others(7)
    assert finished(inbox.wait_for(7, 1, 3, lambda: True)) == ADOPT
    inbox.adopt(ADOPT)
    inbox.forget_others(8)
    assert finished(inbox.wait_for(7, 1, 3, lambda: True)) is None


def test_answers_are_taken_together() -> None:
    inbox = Inbox()
    inbox.settle(7, Outcome.CARRIED)
    inbox.settle(8, Outcome.ADMITTED)
    assert inbox.outcomes() == {7: Outcome.CARRIED, 8: Outcome.ADMITTED}
    assert inbox.outcomes() == {}
