"""What reads a text: a decoder that is written by PCP, or one of which only a program is known."""

from dataclasses import astuple, dataclass
from typing import Any, Protocol, runtime_checkable

from pcp.ir.tree import flatten
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import Parameters
from pcp.tensor import Tensor


@runtime_checkable
class Reads(Protocol):
    """A decoder."""

    @property
    def identity(self) -> object:
        """What tells it from all others, as `repr` shows it: steps are kept on disk by that."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    @property
    def context(self) -> int:
        """Most tokens that it sees."""

    def least_width(self, page: int) -> int:
        """Pages that the table of a row has at least, of so many tokens each."""

    def empty_cache(self, parameters: Parameters, pages: int, page: int, form: str = "") -> Any:
        """Zeros (pages, page, ...), nested, in a form of `pcp.models.paged`; empty: what is computed in."""

    def read(
        self,
        parameters: Any,
        cache: Any,
        tokens: Tensor,
        start: Tensor,
        count: Tensor,
        table: Tensor,
        every: bool,
    ) -> tuple[Any, Tensor]:
        """The cache with these tokens, and scores; as `pcp.models.decoder.read`."""


LEAST_WIDTH = 8
"""Pages that every row's table has room for, so that short texts have one shape."""


@dataclass(frozen=True, slots=True)
class Written:
    """A decoder that is written by PCP.

    Arguments:
        config: what it computes.
        apart: see `pcp.models.decoder.read`.
    """

    config: DecoderConfig
    apart: bool = False

    @property
    def identity(self) -> object:
        """See `Reads`: all of the sizes, of which `repr` shows some."""
        return astuple(self.config), self.apart

    @property
    def vocabulary(self) -> int:
        """See `Reads`."""
        return self.config.vocabulary

    @property
    def context(self) -> int:
        """See `Reads`."""
        return self.config.context

    def least_width(self, page: int) -> int:
        """See `Reads`."""
        del page
        return LEAST_WIDTH

    def empty_cache(self, parameters: Parameters, pages: int, page: int, form: str = "") -> Any:
        """See `Reads`; of the element type that is computed in: vectors are never stored in fewer bits."""
        dtype = next(leaf.dtype for leaf in flatten(parameters)[0] if len(leaf.shape) == 1)
        return decoder.empty_cache(self.config, pages, page, form or dtype)

    def read(
        self,
        parameters: Any,
        cache: Any,
        tokens: Tensor,
        start: Tensor,
        count: Tensor,
        table: Tensor,
        every: bool,
    ) -> tuple[Any, Tensor]:
        """See `Reads`."""
        return decoder.read(
            parameters, cache, tokens, start, count, table, self.config, every, apart=self.apart
        )


def reading(model: DecoderConfig | Reads, apart: bool = False) -> Reads:
    """What reads the texts of a model, from its sizes."""
    return Written(model, apart) if isinstance(model, DecoderConfig) else model
