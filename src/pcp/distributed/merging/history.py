"""Contributions of earlier rounds, by their signatures: who sends one again has not trained."""

import numpy as np

NEAR = 0.01  # distance, relative to the length, below which two signatures are of one vector


def replayed(marks: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Which signatures were seen in an earlier round, at whatever scale.

    Arguments:
        marks: signatures of a round's contributions, of shape (contributions, k).
        seen: those of earlier rounds, of shape (remembered, k); rows of zeros are empty places.
    """
    known = seen[np.any(seen != 0, axis=1)].astype(np.float64)
    if not len(known):
        return np.zeros(len(marks), bool)
    is_near: np.ndarray = (_units(marks) @ _units(known).T).max(1) > 1 - NEAR**2 / 2
    return is_near


def remembered(seen: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """The signatures with a round's added; the oldest go. What was sent again is as good as new, so it stays known.

    Arguments:
        seen: of shape (remembered, k).
        marks: of shape (contributions, k).
    """
    added = _units(marks).astype(np.float32)
    kept: np.ndarray = np.concatenate([seen, added])[-len(seen) :]
    return kept


def _units(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: np.ndarray = rows / np.where(lengths > 0, lengths, np.inf)
    return units
