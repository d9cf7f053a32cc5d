"""Which blobs a worker may move once a message has been sent to it."""

from pcp.distributed.messages import AskStates, Assign, Blob, Merged, Message, Repeat, Welcome
from pcp.distributed.wire import Announcements


def announce(message: Message, worker: str, announcements: Announcements, push_bytes: int) -> None:
    """Let workers fetch what a message names, and push what it asks for.

    Arguments:
        message: about to be sent.
        worker: to whom.
        announcements: what may be moved.
        push_bytes: that a worker may push after a lease or a question.
    """
    if isinstance(message, Welcome):
        announcements.announce(message.blobs)
    elif isinstance(message, Merged):
        announcements.announce(_there(message.parameters, message.change))
    elif isinstance(message, Assign):
        for each in message.lease.adopt:
            announcements.announce(_there(each.parameters, each.change))
        announcements.allow_push(worker, push_bytes)
    elif isinstance(message, AskStates):
        announcements.allow_push(worker, push_bytes)
    elif isinstance(message, Repeat):
        parameters = [each.parameters for each in message.lease.adopt]
        announcements.announce(_there(message.before, *parameters))


def _there(*blobs: Blob | None) -> list[Blob]:
    return [blob for blob in blobs if blob is not None]
