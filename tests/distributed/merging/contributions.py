"""Contributions for the tests of merges: honest ones with a common direction, and float64 references."""

from collections.abc import Sequence

import numpy as np

from pcp.distributed.merging import Loader, Segment

SEGMENTS = (
    Segment("table", 1600, embedding=True),
    Segment("bias", 7),
    Segment("matrix", 900),
    Segment("scale", 1),
)
SIZE = sum(segment.size for segment in SEGMENTS)


def honest(seed: int, count: int = 8, noise: float = 1.0) -> np.ndarray:
    """Contributions of shape (count, SIZE): a common direction plus each worker's own noise, leaves of different sizes."""
    generator = np.random.default_rng(seed)
    scale = np.concatenate([np.full(segment.size, 10.0**-place) for place, segment in enumerate(SEGMENTS)])
    common = generator.standard_normal(SIZE)
    own = noise * generator.standard_normal((count, SIZE))
    rows: np.ndarray = ((common + own) * scale).astype(np.float32)
    return rows


def loaders(rows: np.ndarray) -> list[Loader]:
    """A loader for each row."""
    return [row.copy for row in rows]


def leaves(rows: np.ndarray) -> list[np.ndarray]:
    """The leaves of rows in float64, each of shape (count, size)."""
    return np.split(rows.astype(np.float64), np.cumsum([segment.size for segment in SEGMENTS])[:-1], axis=1)


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Leaves of one vector, joined."""
    return np.concatenate([np.atleast_1d(part) for part in parts])


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """The distance of two vectors, relative to the length of the second."""
    return float(np.linalg.norm(np.asarray(found, np.float64) - expected) / np.linalg.norm(expected))
