"""The gradient of an embedding: rows added up by token."""

from pcp.kernels.embedding import stablehlo as stablehlo
