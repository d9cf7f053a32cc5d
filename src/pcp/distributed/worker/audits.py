"""Audits as a worker sees them: its states are asked for, or it repeats a piece of another worker's lease."""

from pcp.distributed.messages import AskStates, Blob, Failure, Repeat, Repeated, States
from pcp.distributed.worker.connection import Turn
from pcp.distributed.worker.effects import (
    FetchBlob,
    FetchState,
    ForgetBlob,
    ForgetState,
    Notice,
    RepeatPiece,
    UploadState,
)
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    PieceFailed,
    PieceRepeated,
    StateUploadFailed,
)
from pcp.distributed.worker.state import Repetition, StateUpload

STATE_UPLOADS = 8
"""How often the upload of a state is tried, with pauses that double; an audit that still wants it asks again."""

STATES_KNOWN = 64
"""Of which the size is remembered; the trainer keeps fewer."""


def remember(turn: Turn, blobs: tuple[Blob, ...]) -> None:
    """Note the worker's own states, which may be asked for."""
    known = turn.state.known
    known.update((blob.digest, blob) for blob in blobs)
    for digest in list(known)[: max(0, len(known) - STATES_KNOWN)]:
        del known[digest]


def asked(turn: Turn, message: AskStates) -> None:
    """Say how large the wanted states are, and upload them."""
    known = turn.state.known | {blob.digest: blob for blob in turn.state.results}
    blobs = tuple(known[digest] for digest in message.digests if digest in known)
    if len(blobs) < len(message.digests):
        turn.effects.append(Notice(f"audit {message.audit} asks for states that are not here any more"))
        return
    turn.send(States(message.audit, blobs))
    uploads = turn.state.state_uploads
    uploads.update((blob, StateUpload()) for blob in blobs)
    for blob in list(uploads)[: max(0, len(uploads) - STATES_KNOWN)]:
        del uploads[blob]
    turn.effects += [UploadState(blob) for blob in blobs]


def worked(turn: Turn, event: PieceRepeated | PieceFailed | StateUploadFailed) -> None:
    """Go on after the work for an audit."""
    if isinstance(event, StateUploadFailed):
        _upload_later(turn, event)
    else:
        _ended(turn, event)


def _upload_later(turn: Turn, event: StateUploadFailed) -> None:
    uploads = turn.state.state_uploads
    if event.blob not in uploads:
        return  # it was asked for by a Shepherd that is gone
    failed = uploads[event.blob].failed + 1
    if failed >= STATE_UPLOADS:
        del uploads[event.blob]
        turn.effects.append(Notice(f"the upload of a state failed {failed} times and ends: {event.reason}"))
        return
    pause = turn.config.retry_seconds(failed - 1)
    uploads[event.blob] = StateUpload(failed, turn.now + pause)
    turn.effects.append(Notice(f"the upload of a state failed ({event.reason}); again in {pause:.1f} s"))


def upload_again(turn: Turn) -> None:
    """Upload the states whose pause is over."""
    for blob, upload in list(turn.state.state_uploads.items()):
        if upload.retry is not None and turn.now >= upload.retry:
            turn.state.state_uploads[blob] = StateUpload(upload.failed)
            turn.effects.append(UploadState(blob))


def repeat(turn: Turn, wanted: Repeat) -> None:
    """Begin to repeat a piece: what it names is fetched first."""
    state = turn.state
    if state.prepared is None or state.task is not None or state.repetition is not None:
        turn.send(Failure(state.generation, wanted.audit, "busy"))
        return
    adopted = {each.parameters for each in wanted.lease.adopt if each.parameters is not None}
    needed = adopted | ({wanted.before} if wanted.before else set())
    state.repetition = Repetition(wanted, tuple(sorted(needed, key=lambda each: each.digest)), set(needed))
    for blob in state.repetition.named:
        turn.effects.append(FetchState(blob) if blob == wanted.before else FetchBlob(blob))
    _start_if_ready(turn)


def fetched(turn: Turn, event: BlobFetched | BlobUnavailable) -> None:
    """Note that a blob of the piece is here, or that the piece cannot be repeated."""
    repetition = turn.state.repetition
    if repetition is None or event.blob not in repetition.missing:
        return
    if isinstance(event, BlobUnavailable):
        _fail(turn, f"a blob of the piece cannot be fetched: {event.reason}")
        return
    repetition.missing.discard(event.blob)
    _start_if_ready(turn)


def _start_if_ready(turn: Turn) -> None:
    repetition = turn.state.repetition
    if repetition is not None and not repetition.missing:
        turn.effects.append(RepeatPiece(repetition.wanted))


def _ended(turn: Turn, event: PieceRepeated | PieceFailed) -> None:
    """Tell what the repetition came to; its results stay until another begins, should they be asked for."""
    state, repetition = turn.state, turn.state.repetition
    if repetition is None or repetition.wanted.audit != event.audit:
        return
    if isinstance(event, PieceFailed):
        _fail(turn, event.reason)
        return
    _forget(turn, state.results)
    state.results = (event.after, *([event.payload] if event.payload else []))
    stop(turn)
    turn.tell(Repeated(event.audit, event.after, event.payload))


def _fail(turn: Turn, reason: str) -> None:
    state = turn.state
    assert state.repetition is not None
    audit = state.repetition.wanted.audit
    stop(turn)
    turn.effects.append(Notice(f"the piece of audit {audit} cannot be repeated: {reason}"))
    turn.tell(Failure(state.generation, audit, reason))


def stop(turn: Turn) -> None:
    """End the repetition under way, and let go of what was fetched for it."""
    repetition, turn.state.repetition = turn.state.repetition, None
    if repetition is not None:
        before = repetition.wanted.before
        _forget(turn, tuple(blob for blob in repetition.named if blob != before))
        if before is not None and before.digest not in turn.state.known:
            turn.effects.append(ForgetState(before))


def _forget(turn: Turn, blobs: tuple[Blob, ...]) -> None:
    # Workers that begin alike have states in common: those that are this one's own as well, the trainer forgets.
    turn.effects += [ForgetBlob(blob) for blob in blobs if blob.digest not in turn.state.known]
