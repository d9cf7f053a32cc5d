"""Members of a run that say anything: words of every kind, about what was seen, of others, and once more."""

from collections import deque
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from pcp.distributed.coordinator import Coordinator, RunConfig
from pcp.distributed.coordinator.events import (
    BlobStored,
    ConnectionLost,
    Event,
    MemberJoined,
    MessageReceived,
)
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Failure,
    Goodbye,
    Heartbeat,
    Hello,
    Lease,
    Message,
    Ready,
    Repeated,
    Resume,
    States,
    Update,
)
from pcp.distributed.simulator.fuzz.honest import update_of
from pcp.distributed.simulator.fuzz.values import Values

SAID = (Heartbeat, Ready, Resume, Update, States, Repeated, Failure, Goodbye)
NAMES = ("ada", "bob", "carol", "dan")


class Life(Protocol):
    """What members are part of: see `ShepherdLife`."""

    random: Random
    values: Values
    config: RunConfig
    coordinator: Coordinator
    now: float
    connections: int
    generations: dict[int, int]

    def do(self, event: Event) -> None:
        """Let something happen."""


class Crowd:
    """Some members, who they are and what they have seen.

    Arguments:
        life: that they are part of.
    """

    def __init__(self, life: Life) -> None:
        self.life, self.random, self.values = life, life.random, life.values
        self.names: dict[int, str] = {}  # of the connections that stand
        self.leases: deque[Lease] = deque(maxlen=16)
        self.said: deque[Message] = deque(maxlen=16)

    def leave(self) -> None:
        """Lose one connection, or keep it."""
        if self.names and self.random.random() < 0.3:
            connection = self.random.choice(sorted(self.names))
            del self.names[connection]
            self.life.do(ConnectionLost(self.life.now, connection))

    def leave_all(self) -> None:
        """Lose every connection."""
        for connection in sorted(self.names):
            self.life.do(ConnectionLost(self.life.now, connection))
        self.names.clear()

    def hello(self) -> None:
        self.life.connections += 1
        connection, name = self.life.connections, self.random.choice(NAMES)
        if self.random.random() < 0.05 and self.names:
            connection = self.random.choice(sorted(self.names))  # once more
        hello = self.values.message(Hello, protocol_version=PROTOCOL_VERSION, worker=name)
        if self.random.random() < 0.7:
            hello = replace(hello, incarnation=name.encode())
        self.names[connection] = name
        self.life.do(MemberJoined(self.life.now, connection, hello))
        if self.leases and self.random.random() < 0.5:
            self.life.do(MessageReceived(self.life.now, connection, self._resumed(connection)))
        if connection in self.names and self.random.random() < 0.8:
            self.life.do(
                MessageReceived(self.life.now, connection, Ready(self.life.generations.get(connection, 0)))
            )

    def say(self) -> None:
        random = self.random
        connection = random.choice(sorted(self.names)) if self.names else 0
        generation = self.life.generations.get(connection, 0)
        message: Any
        if self.said and random.random() < 0.1:
            message = random.choice(self.said)  # once more, by anybody
        elif self.leases and random.random() < 0.55:
            message = self._of_a_lease(connection, generation)
        else:
            message = self.values.message(random.choice(SAID))
        if hasattr(message, "generation") and random.random() < 0.8:
            message = replace(message, generation=generation)
        self.values.see(message)
        self.said.append(message)
        self.life.do(MessageReceived(self.life.now, connection, message))

    def _of_a_lease(self, connection: int, generation: int) -> Any:
        """Something about a lease that is known."""
        random, lease = self.random, self._lease_of(connection)
        match random.randrange(6):
            case 0 | 1:
                return self._resumed(connection)
            case 2:
                return self.values.message(Heartbeat, lease_id=lease.lease_id, generation=generation)
            case 3:
                return Failure(generation, lease.lease_id, "no")
            case _:
                update = update_of(self.life.config, lease)
                if random.random() < 0.8:
                    self.life.do(BlobStored(self.life.now, update.payload))
                return self.values.changed(update) if random.random() < 0.5 else update

    def _resumed(self, connection: int) -> Resume:
        """A lease that was granted to somebody, or one that is much like it."""
        random, lease = self.random, self.random.choice(self.leases)
        if random.random() < 0.4:
            lease = self.values.crossed(lease, random.choice(self.leases))
        if random.random() < 0.4:
            lease = self._with_data_to_be_had(lease)
        lease = replace(lease, generation=self.life.generations.get(connection, 0))
        if random.random() < 0.8:
            lease = replace(lease, after=0)
        elif random.random() < 0.5:
            lease = replace(lease, after=random.choice(self.leases).lease_id)
        if lease.batches > 1 and random.random() < 0.3:
            lease = lease.cut(random.randrange(1, lease.batches))
        return Resume(self.values.changed(lease) if random.random() < 0.3 else lease)

    def _with_data_to_be_had(self, lease: Lease) -> Lease:
        """A lease of batches that nobody holds, where there are any, with the number of one that may have ended."""
        state = self.life.coordinator.state
        blocks = [each.data for each in state.pending.blocks]
        if not blocks or not state.run.in_flight:
            return lease
        data = self.random.choice(blocks)
        further = (self.random.choice(blocks),) if self.random.random() < 0.2 else ()
        number = state.run.in_flight[-1].number
        return replace(lease, round=number, fragment=0, fragments=(), data=data, further=further)

    def _lease_of(self, connection: int) -> Lease:
        """The lease that a connection's worker holds, or any."""
        state = self.life.coordinator.state
        member = state.members.get(state.connections.get(connection, 0))
        if member is not None and member.training and self.random.random() < 0.8:
            return state.leases[member.training].lease
        return self.random.choice(self.leases)
