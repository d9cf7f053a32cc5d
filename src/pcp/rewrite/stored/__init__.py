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
from pcp.rewrite.stored.state import LEAST_STATE as LEAST_STATE
from pcp.rewrite.stored.state import is_moment as is_moment
from pcp.rewrite.stored.state import narrower as narrower
from pcp.rewrite.stored.state import with_narrow_state as with_narrow_state
