"""Connections between two actors that stand in for Ray's: what is said arrives in its order, and an end is noticed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pcp.distributed.engines.ray.links import Link, Switchboard
from pcp.distributed.messages import Goodbye, Heartbeat, Message
from pcp.distributed.wire import ConnectionLost, RefusalCode


class Handle:
    """An actor as another one sees it: its methods are called by `remote`, and fail when it is dead."""

    def __init__(self, actor: Switchboard) -> None:
        self._actor = actor
        self.calls = 0
        self.died = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._actor, name)

        class Remote:
            remote = staticmethod(lambda *arguments: asyncio.ensure_future(self._call(method, *arguments)))

        return Remote()

    async def _call(self, method: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        self.calls += 1
        work, death = asyncio.ensure_future(method(*arguments)), asyncio.ensure_future(self.died.wait())
        await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
        if self.died.is_set():
            work.cancel()
            raise RuntimeError("the actor died")
        death.cancel()
        return work.result()


class Pair:
    """Two actors with a connection."""

    def __init__(self) -> None:
        self.boards = Switchboard(), Switchboard()
        self.handles = Handle(self.boards[0]), Handle(self.boards[1])
        self.ends: tuple[Link, Link] = (
            self.boards[0].open_link("n", "ada", "there", self.handles[1]),
            self.boards[1].open_link("n", "ada", "here", self.handles[0]),
        )
        self.boards[0].watch("n", self.handles[1])
        self.boards[1].watch("n", self.handles[0])


def beat(number: int) -> Heartbeat:
    return Heartbeat(number, 1, 0, 0, 0.0)


async def heard(link: Link) -> list[Message]:
    return [message async for message in link]


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20.0):
            await scene()

    asyncio.run(bounded())


def test_messages_arrive_in_their_order_and_in_few_calls() -> None:
    async def scene() -> None:
        pair = Pair()
        near, far = pair.ends
        for number in range(200):
            near.post(beat(number))
            if number % 50 == 0:
                await asyncio.sleep(0)
        await near.close(Goodbye(True, "done"))
        messages = await heard(far)
        assert messages == [*(beat(number) for number in range(200)), Goodbye(True, "done")]
        assert pair.handles[1].calls < 20
        assert far.over.is_set()

    played(scene)


def test_both_ends_know_whose_connection_it_is() -> None:
    async def scene() -> None:
        assert [each.peer.name for each in Pair().ends] == ["ada", "ada"]

    played(scene)


@pytest.mark.parametrize("speaks", [False, True])
def test_an_actor_that_dies_ends_the_connection_at_once(speaks: bool) -> None:
    async def scene() -> None:
        pair = Pair()
        near, _ = pair.ends
        await asyncio.sleep(0)
        pair.handles[1].died.set()
        if speaks:
            near.post(beat(1))
        assert await heard(near) == []
        assert await near.receive() is None, "and stays so"

    played(scene)


def test_what_was_said_before_the_end_is_still_heard() -> None:
    async def scene() -> None:
        near, far = Pair().ends
        near.post(beat(1))
        await near.refuse(RefusalCode.CAPACITY, "too many")
        assert await heard(far) == [beat(1), Goodbye(False, "too many")]

    played(scene)


def test_nobody_waits_for_an_end_that_does_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.distributed.engines.ray.links.LAST_WORDS_SECONDS", 0.05)

    async def scene() -> None:
        async def never(_: list[Message]) -> None:
            await asyncio.Event().wait()

        link = Link("ada", "there", never)
        link.post(beat(1))
        await link.close(Goodbye(False, "enough"))
        assert link.over.is_set()
        assert await heard(link) == []

    played(scene)


def test_a_connection_that_has_ended_says_so_to_who_speaks_to_it() -> None:
    async def scene() -> None:
        with pytest.raises(ConnectionLost, match="the connection has ended"):
            await Switchboard().hear("n", [beat(1)])
        await Switchboard().outlast("n")  # over already: returns

    played(scene)
