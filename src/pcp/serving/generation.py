"""One request at the engine: its answers as they come, and their end when the client leaves."""

import asyncio
import dataclasses
import functools
from collections.abc import AsyncIterator

from pcp.errors import PCPError
from pcp.inference.request import (
    EngineClosed,
    EngineFailed,
    EngineFull,
    Piece,
    Request,
    RequestTooLong,
    Stream,
)
from pcp.serving.ask import Answer, Ask, Token, Told, Usage
from pcp.serving.measures import Measures, Timing
from pcp.serving.model import ServedModel
from pcp.serving.refusals import Busy, ContextExceeded, Draining, Failed, InvalidField, NoMemory, Refused
from pcp.serving.tool_calls import Call, ToolReader

_SEEDS = 1 << 64


class Generation:
    """The answers to an ask. It begins when it is made; who makes it cancels it in the end, which harms nothing that is done.

    Arguments:
        model: that answers.
        ask: what it is asked.
        measures: told what happens.
        retry_after: seconds after which a request may be tried again that the engine has no room for.

    Raises:
        Busy, Draining, ContextExceeded, NoMemory, InvalidField: the engine takes no such request.
    """

    def __init__(self, model: ServedModel, ask: Ask, measures: Measures, retry_after: int) -> None:
        self._model, self._ask, self._measures = model, ask, measures
        count = len(ask.prompts) * ask.choices
        self.answers = [Answer() for _ in range(count)]
        self._pieces: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()
        self._numbers: list[list[int]] = [[] for _ in range(count)]
        self._readers = [None if ask.tools is None else ToolReader(ask.tools) for _ in range(count)]
        self._timings = [Timing(measures, len(ask.prompts[each // ask.choices])) for each in range(count)]
        self._streams: list[Stream] = []
        loop = asyncio.get_running_loop()
        try:
            for choice in range(count):
                stream = self._submitted(choice, retry_after)
                self._streams.append(stream)
                stream.listen(functools.partial(_hand_over, loop, self._pieces, choice))
        except BaseException:
            self.cancel()
            raise

    def _submitted(self, choice: int, retry_after: int) -> Stream:
        ask = self._ask
        sampling = dataclasses.replace(ask.sampling, seed=(ask.sampling.seed + choice % ask.choices) % _SEEDS)
        try:
            return self._model.engine.submit(
                Request(
                    ask.prompts[choice // ask.choices],
                    ask.count,
                    sampling,
                    stop=ask.stop,
                    logprobs=ask.logprobs,
                    ignore_end=ask.ignore_end,
                    mask=None if ask.masked is None else ask.masked(),
                )
            )
        except EngineFull as error:
            raise Busy(f"{error}; try again in {retry_after} s", retry_after=retry_after) from None
        except EngineClosed:
            raise Draining(
                "the server ends and takes no more requests; ask another, or later", retry_after=10
            ) from None
        except RequestTooLong as error:
            raise ContextExceeded(str(error)) from None
        except MemoryError:
            raise NoMemory(
                "there is no memory for this request; the others go on. Try again later, or with a shorter prompt",
                retry_after=retry_after,
            ) from None
        except PCPError as error:  # what else is wrong with the request
            raise InvalidField(str(error)) from None

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(sum(map(len, self._ask.prompts)), sum(answer.count for answer in self.answers))

    @property
    def has_more(self) -> bool:
        """Whether something was said that `told` has not given yet."""
        return not self._pieces.empty()

    async def told(self) -> AsyncIterator[Told]:
        """What is said, in the order in which it comes, until all answers have ended.

        Raises:
            Failed: a step of the model failed.
            Draining: the server ended before the answer did.
        """
        left = len(self.answers)
        while left:
            choice, piece = await self._pieces.get()
            self._timings[choice].saw(piece)
            told = self._read(choice, piece)
            left -= bool(told.finish)
            if told.text or told.tokens or told.calls or told.finish:
                yield told

    async def whole(self) -> list[Answer]:
        """All answers, when they have ended; raises what `told` does."""
        async for _ in self.told():
            pass
        return self.answers

    def cancel(self) -> None:
        """Want no more."""
        for stream, timing in zip(self._streams, self._timings, strict=False):
            if not timing.has_ended:
                stream.cancel()
                timing.leave()

    def _read(self, choice: int, piece: Piece) -> Told:
        answer, reader = self.answers[choice], self._readers[choice]
        if piece.finish == "failed":
            raise self._failure(choice)
        if piece.finish == "cancelled":
            raise Draining("the server ended before this answer did; ask another, or later", retry_after=10)
        tokens: tuple[Token, ...] = ()
        if piece.token is not None:
            answer.count += 1
            if piece.token < self._model.tokenizer.vocabulary_size:
                self._numbers[choice].append(piece.token)
            is_end = piece.finish == "stop" and piece.token in self._model.habits.ends
            if (
                piece.logprob is not None and not is_end
            ):  # an end has no text, and clients read these as the text's
                tokens = (Token(piece.token, piece.logprob, piece.top),)
        text = piece.text
        calls: tuple[Call, ...] = ()
        if reader is not None:
            text, calls = reader.read(piece.text, piece.finish is not None)
        answer.text += text
        answer.calls += calls
        answer.tokens += tokens
        if piece.finish is not None:
            called = answer.calls and piece.finish == "stop"
            answer.finish = "tool_calls" if called else piece.finish
            answer.stopped_by = self._stopped_by(choice, piece)
        return Told(choice, text, tokens, calls, answer.finish, answer.stopped_by)

    def _failure(self, choice: int) -> Refused:
        error = self._streams[choice].error
        cause = error.__cause__ if isinstance(error, EngineFailed) and error.__cause__ is not None else error
        if isinstance(cause, MemoryError):
            return NoMemory(
                "there was no memory left for this answer; the others go on. Try again later", retry_after=10
            )
        return Failed(f"the model failed: {error}")

    def _stopped_by(self, choice: int, piece: Piece) -> str | None:
        """The stop text that ended an answer: of those in its tokens the first."""
        if piece.finish != "stop" or not self._ask.stop:
            return None
        text = self._model.tokenizer.decode(self._numbers[choice])
        found = [(place, stop) for stop in self._ask.stop if (place := text.find(stop)) >= 0]
        return min(found)[1] if found else None


def _hand_over(
    loop: asyncio.AbstractEventLoop, pieces: "asyncio.Queue[tuple[int, Piece]]", choice: int, piece: Piece
) -> None:
    """Give a piece from the engine's thread to the loop, if that still runs."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(pieces.put_nowait, (choice, piece))
