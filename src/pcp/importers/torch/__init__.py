"""Models of PyTorch: `torch.export` makes a graph of ATen operations, a table of rows makes a Program of that."""

from pcp.importers.torch.imported import Imported as Imported
from pcp.importers.torch.imported import from_torch as from_torch
