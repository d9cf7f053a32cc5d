"""`pcp.linalg`: systems, decompositions and norms of matrices, under NumPy's names and with its defaults.

The last two axes are those of matrices; all others are batches. Systems, inverses and determinants are computed by
elimination, and run everywhere. QR, eigenvalues and singular values are LAPACK's, as JAX calls it: they run on a CPU alone.
All have gradients.
"""

from pcp.linalg.decompositions import eig as eig
from pcp.linalg.decompositions import eigh as eigh
from pcp.linalg.decompositions import eigvals as eigvals
from pcp.linalg.decompositions import eigvalsh as eigvalsh
from pcp.linalg.decompositions import qr as qr
from pcp.linalg.decompositions import svd as svd
from pcp.linalg.decompositions import svdvals as svdvals
from pcp.linalg.norms import cond as cond
from pcp.linalg.norms import cross as cross
from pcp.linalg.norms import diagonal as diagonal
from pcp.linalg.norms import lstsq as lstsq
from pcp.linalg.norms import matrix_norm as matrix_norm
from pcp.linalg.norms import matrix_rank as matrix_rank
from pcp.linalg.norms import norm as norm
from pcp.linalg.norms import pinv as pinv
from pcp.linalg.norms import trace as trace
from pcp.linalg.norms import vector_norm as vector_norm
from pcp.linalg.operands import QR as QR
from pcp.linalg.operands import SVD as SVD
from pcp.linalg.operands import Eigh as Eigh
from pcp.linalg.operands import SlogDet as SlogDet
from pcp.linalg.systems import cholesky as cholesky
from pcp.linalg.systems import det as det
from pcp.linalg.systems import inv as inv
from pcp.linalg.systems import matrix_power as matrix_power
from pcp.linalg.systems import multi_dot as multi_dot
from pcp.linalg.systems import slogdet as slogdet
from pcp.linalg.systems import solve as solve
from pcp.linalg.systems import solve_triangular as solve_triangular
from pcp.linalg.systems import tensorinv as tensorinv
from pcp.linalg.systems import tensorsolve as tensorsolve
from pcp.ops.linear.contractions import matrix_transpose as matrix_transpose
from pcp.ops.linear.contractions import vecdot as vecdot
from pcp.ops.linear.matrices import outer as outer
from pcp.ops.linear.matrices import tensordot as tensordot
from pcp.ops.linear.products import matmul as matmul
