"""Values that are kept in fewer bits: classes of what products read and make, and arguments."""

from pcp.rewrite.stored.arguments import Matrix as Matrix
from pcp.rewrite.stored.arguments import NotStored as NotStored
from pcp.rewrite.stored.arguments import matrices_in as matrices_in
from pcp.rewrite.stored.arguments import with_stored_arguments as with_stored_arguments
from pcp.rewrite.stored.products import FACTORS as FACTORS
from pcp.rewrite.stored.products import RESULTS as RESULTS
from pcp.rewrite.stored.products import ProductClass as ProductClass
from pcp.rewrite.stored.products import is_constrained as is_constrained
from pcp.rewrite.stored.products import products_in as products_in
from pcp.rewrite.stored.products import stored as stored
