"""Why a peer will not go on: one small vocabulary for control and bulk connections."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from pcp.distributed.bounds import Whole, Words


class RefusalCode(IntEnum):
    """The kind of a refusal; the number travels, so rows are only ever appended."""

    OTHER = 0
    CERTIFICATE = 1  # revoked, or of the wrong kind
    CAPACITY = 2  # too many connections; try again later
    VERSION = 3  # the two sides speak different versions of the protocol
    IDENTITY = 4  # the name in Hello is not the name in the certificate
    DECLINED = 5  # the other side does not want this member
    NOT_ANNOUNCED = 6  # the blob is not one that may be moved now
    TOO_LARGE = 7
    MISSING = 8  # announced, but not in the store
    STORE_FULL = 9
    CORRUPT = 10  # the digest of what arrived is wrong
    PROTOCOL = 11  # what was received makes no sense here
    BUSY = 12  # the same blob is being moved already; try again later


RETRYABLE = frozenset({RefusalCode.CAPACITY, RefusalCode.BUSY})
"""Refusals that time alone may lift."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Either side: I will not go on, and this is why.

    Arguments:
        code: a `RefusalCode`, kept as a number because a newer peer may send one that is not known here.
        reason: a sentence for a person.
    """

    code: Annotated[int, Whole(2**16 - 1)]
    reason: Annotated[str, Words(800)]

    @property
    def kind(self) -> RefusalCode:
        """The code as far as it is known here."""
        try:
            return RefusalCode(self.code)
        except ValueError:
            return RefusalCode.OTHER
