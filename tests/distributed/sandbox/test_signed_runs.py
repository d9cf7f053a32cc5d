"""A Shepherd that was taken over offers what the authority signed, for another run or long ago."""

import json
import time

import pytest

from pcp.distributed.job import JobExpired, JobForeign, Term, signed
from pcp.distributed.messages import Failure, FailureKind, Welcome
from pcp.distributed.wire import ControlConnection
from tests.distributed.worker.test_process import Shepherd
from tests.distributed.worker.test_process import shepherd as shepherd
from tests.distributed.worker.test_process import trainer as trainer


@pytest.mark.parametrize(
    ("term", "error", "message"),
    [
        (Term("another", 0, 1 << 36), JobForeign, "for the run 'another', and the Shepherd offers it for 'run'"),
        (Term("run", 0, 1_000_000_000), JobExpired, "expired on 2001-09-09; ask the run's owner to start the Shepherd once"),
    ],
)  # fmt: skip
def test_what_was_signed_for_another_run_or_another_time_ends_the_worker(
    shepherd: Shepherd, term: Term, error: type[Exception], message: str
) -> None:
    description = signed(shepherd.job.to_json(), shepherd.wire.authority.sign, term)
    shepherd.signed = lambda _run=None: description  # type: ignore[method-assign]  # as a Shepherd that was taken over

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        failure = await shepherd.next(connection, Failure)
        assert (failure.lease_id, failure.kind) == (0, FailureKind.UNSIGNED)

    with pytest.raises(error, match=message):
        shepherd.run(script)


def test_a_worker_stays_with_its_run(shepherd: Shepherd) -> None:
    """The authority signed both; only who starts the worker may turn it to the other."""

    async def first(connection: ControlConnection) -> None:
        await shepherd.begin(connection)

    async def second(connection: ControlConnection) -> None:
        other = Term.of("another", time.time())
        content = json.loads(shepherd.job.to_json()) | {"seed": 2}
        run = signed(json.dumps(content), shepherd.wire.authority.sign, other)
        connection.post(Welcome(1, 6, "another", 0.5, run, shepherd.job.offered))
        assert (await shepherd.next(connection, Failure)).kind == FailureKind.UNSIGNED

    with pytest.raises(
        JobForeign, match="was prepared for the run 'run', and the Shepherd now offers 'another'"
    ):
        shepherd.run(first, second)
