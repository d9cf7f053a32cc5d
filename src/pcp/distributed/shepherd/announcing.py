"""What a worker may fetch and push follows from what it is told."""

from pcp.distributed.messages import AskStates, Assign, Blob, Merged, Message, Repeat, Welcome
from pcp.distributed.wire import Announcements


def announce(announcements: Announcements, worker: str, message: Message, push_bytes: int) -> None:
    """Allow the transfers that a message to a worker asks for.

    Arguments:
        announcements: what may be fetched and pushed.
        worker: name of who is told.
        message: what it is told.
        push_bytes: what it may push after each lease or question.
    """
    match message:
        case Welcome():
            announcements.announce(message.blobs)
        case Merged():
            announcements.announce(_there(message.parameters, message.change))
        case Assign():
            for each in message.lease.adopt:
                announcements.announce(_there(each.parameters, each.change))
            announcements.allow_push(worker, push_bytes)
        case AskStates():
            announcements.allow_push(worker, push_bytes)
        case Repeat():
            announcements.announce(_there(*(each.parameters for each in message.lease.adopt)))
            # Another worker's inner state: moments and residuals say more of its data than its pushes do.
            announcements.show(worker, _there(message.before))
        case _:
            pass


def _there(*blobs: Blob | None) -> list[Blob]:
    return [blob for blob in blobs if blob is not None]
