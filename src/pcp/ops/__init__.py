"""Operations on Tensors: three families of primitives (movement, elementwise, reduction) and what is composed of them."""

from pcp.ops import elementwise, indexing, linear_algebra, movement, normalizing, promotion, reduction
from pcp.tensor import OPERATIONS

__all__ = [
    "OPERATIONS",
    "elementwise",
    "indexing",
    "linear_algebra",
    "movement",
    "normalizing",
    "promotion",
    "reduction",
]
