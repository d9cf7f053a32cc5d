"""For every row of the table of PyTorch's operations, functions that need it, by families."""

from tests.peers.from_torch import algebra_cases as algebra
from tests.peers.from_torch import elementwise_cases as elementwise
from tests.peers.from_torch import network_cases as network
from tests.peers.from_torch import structure_cases as structure

FAMILIES = {
    "unary": elementwise.UNARY,
    "binary": elementwise.BINARY,
    "creation": elementwise.CREATION,
    "arrangement": structure.ARRANGEMENT,
    "reduction": structure.REDUCTION,
    "products": network.PRODUCTS,
    "indexing": structure.INDEXING,
    "windows": network.WINDOWS,
    "resampling": network.RESAMPLING,
    "attention": network.ATTENTION,
    "composed": network.COMPOSED,
    "recurrence": network.RECURRENCE,
    "complex": algebra.COMPLEX,
    "linear algebra": algebra.LINEAR_ALGEBRA,
    "ordering": algebra.ORDERING,
    "more": algebra.MORE,
}
RANDOM = [
    "native_dropout.default",
    "rand.default",
    "rand_like.default",
    "randn.default",
    "randn_like.default",
    "bernoulli.default",
    "bernoulli.p",
    "randint.default",
    "randint.low",
    "randint_like.default",
    "randint_like.low_dtype",
    "randperm.default",
]
"""Rows whose numbers are not PyTorch's: a test of their own looks at them."""
REFUSED = ["unfold_backward.default"]
"""Rows that say why there is none."""
