"""A request is checked where it is made; a stream gives its pieces to whoever asks."""

import threading
from typing import Any

import pytest

from pcp.inference.request import EmptyPrompt, InvalidRequest, Piece, Request, Stream


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"prompt": []}, EmptyPrompt, "the prompt is empty; give at least one"),
        ({"count": -1}, InvalidRequest, "count is -1; expected at least 0 new tokens"),
        ({"logprobs": 21}, InvalidRequest, "logprobs is 21; expected None, or from 0 to 20"),
        ({"stop": "end"}, InvalidRequest, "stop is 'end'; expected a list of texts"),
        ({"stop": ["a", ""]}, InvalidRequest, "expected a list of texts, none of them empty"),
    ],
)
def test_a_request_that_makes_no_sense(settings: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Request(**{"prompt": [1], **settings})


PIECES = [Piece(1, "a"), Piece(2, ""), Piece(3, "bc", finish="stop")]


def test_pieces_are_iterated_in_another_thread_until_the_last() -> None:
    stream = Stream(lambda _: None)
    writer = threading.Thread(target=lambda: [stream.put(each) for each in PIECES])
    writer.start()
    assert list(stream) == PIECES
    assert list(stream) == []
    writer.join()


def test_a_listener_gets_what_was_there_and_what_comes() -> None:
    stream, heard = Stream(lambda _: None), []
    stream.put(PIECES[0])
    stream.listen(heard.append)
    for each in PIECES[1:]:
        stream.put(each)
    assert heard == PIECES


def test_cancelling_names_the_stream() -> None:
    told: list[Stream] = []
    stream = Stream(told.append)
    stream.cancel()
    assert told == [stream]
