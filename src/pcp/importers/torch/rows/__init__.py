"""The rows of the table, by families."""

from pcp.importers.torch.rows import activation as activation
from pcp.importers.torch.rows import arrangement as arrangement
from pcp.importers.torch.rows import attention as attention
from pcp.importers.torch.rows import complexes as complexes
from pcp.importers.torch.rows import composed as composed
from pcp.importers.torch.rows import creation as creation
from pcp.importers.torch.rows import elementwise as elementwise
from pcp.importers.torch.rows import experts as experts
from pcp.importers.torch.rows import indexing as indexing
from pcp.importers.torch.rows import linear_algebra as linear_algebra
from pcp.importers.torch.rows import losses as losses
from pcp.importers.torch.rows import normalization as normalization
from pcp.importers.torch.rows import ordering as ordering
from pcp.importers.torch.rows import products as products
from pcp.importers.torch.rows import randomness as randomness
from pcp.importers.torch.rows import recurrence as recurrence
from pcp.importers.torch.rows import reduction as reduction
from pcp.importers.torch.rows import resampling as resampling
from pcp.importers.torch.rows import windows as windows
