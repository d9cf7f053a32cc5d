"""What bounds one hostile contribution of two: the other one, and what the rounds before came to."""

import numpy as np

ROUNDS = 16  # whose norms are remembered
KEPT = 0.9  # of the direction of earlier rounds, for each round
LONELY = 2.0  # times the usual norm that a contribution may have to which there is no other
FEWEST = 3  # contributions of which a median says which is the odd one


def bounded(norms: np.ndarray, weights: np.ndarray, usable: np.ndarray, past: np.ndarray) -> np.ndarray:
    """What each leaf's norm may be among one or two contributions.

    Of two, neither may be longer than the other, nor than earlier rounds allow, whichever is more: so who sends a
    thousand times as much counts as the honest one does, and who sends next to nothing does not take the honest one
    along. One alone may be twice as long as is usual.

    Arguments:
        norms: of shape (contributions, leaves).
        weights: of shape (contributions,).
        usable: which contributions are looked at.
        past: norms of earlier rounds, of shape (rounds, leaves); rows of zeros are empty places.

    Returns:
        Of shape (contributions, leaves).
    """
    usual = median_norms(past)
    if usable.sum() == 1:
        bound = LONELY * usual if usual.any() else norms[usable].max(0)
        return np.broadcast_to(bound, norms.shape)
    longer = np.maximum(1.0, weights[:, None] / weights[None, usable])
    bounds: np.ndarray = np.maximum((longer[:, :, None] * norms[None, usable]).min(1), usual)
    return bounds


def median_norms(past: np.ndarray) -> np.ndarray:
    """The usual norm of each leaf; zeros where there is no past."""
    known = past[np.any(past != 0, axis=1)]
    medians: np.ndarray = np.median(known, axis=0) if len(known) else np.zeros(past.shape[1])
    return medians


def contradict(pictures: np.ndarray, usable: np.ndarray) -> bool:
    """Whether there are two contributions, and they point away from each other.

    Arguments:
        pictures: sketches of the contributions, of shape (contributions, k).
        usable: which are looked at.
    """
    places = np.flatnonzero(usable)
    return len(places) == 2 and bool(pictures[places[0]] @ pictures[places[1]] < 0)


def nearest(pictures: np.ndarray, usable: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of contributions that contradict each other, the one that agrees most with earlier rounds; and their cosines with them.

    Arguments:
        pictures: sketches of the contributions, of shape (contributions, k).
        usable: which are looked at.
        direction: where earlier rounds went, of shape (k,).
    """
    lengths = np.linalg.norm(pictures, axis=1) * np.linalg.norm(direction)
    cosines = pictures @ direction / np.where(lengths > 0, lengths, np.inf)
    best = np.flatnonzero(usable)[np.argmax(cosines[usable])]
    return usable & (np.arange(len(usable)) == best), cosines


def remembered_direction(direction: np.ndarray, merged: np.ndarray) -> np.ndarray:
    """The direction of earlier rounds with one more: each counts the same, however long it was.

    Arguments:
        direction: of shape (k,).
        merged: the sketch of what the round came to, of shape (k,).
    """
    length = np.linalg.norm(merged)
    unit = merged / length if length > 0 else merged
    averaged: np.ndarray = (KEPT * direction + (1 - KEPT) * unit).astype(np.float32)
    return averaged


def remembered_norms(past: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """The norms of earlier rounds with those of one more; the oldest go.

    Arguments:
        past: of shape (rounds, leaves).
        norms: what was kept of the round's contributions, of shape (contributions, leaves).
    """
    kept: np.ndarray = np.concatenate([past, np.median(norms, axis=0)[None]])[-len(past) :].astype(np.float32)
    return kept
