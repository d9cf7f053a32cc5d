"""Kernels: ways to compute an operation, by family; and sites, the places of a program where they can stand."""

from pcp.kernels import attention as attention
from pcp.kernels import cross_entropy as cross_entropy
from pcp.kernels import embedding as embedding
from pcp.kernels import normalisation as normalisation
from pcp.kernels import products as products
from pcp.kernels import softmax as softmax
from pcp.kernels.kernel import Kernel as Kernel
from pcp.kernels.registry import FAMILIES as FAMILIES
from pcp.kernels.registry import Family as Family
from pcp.kernels.registry import InvalidKernel as InvalidKernel
from pcp.kernels.registry import KernelNotAdded as KernelNotAdded
from pcp.kernels.registry import KernelUnavailable as KernelUnavailable
from pcp.kernels.registry import UnknownKernel as UnknownKernel
from pcp.kernels.registry import kernel_named as kernel_named
from pcp.kernels.registry import kernels_of as kernels_of
from pcp.kernels.registry import missing_here as missing_here
from pcp.kernels.registry import register_family as register_family
from pcp.kernels.registry import register_kernel as register_kernel
from pcp.kernels.sites import BadReplacement as BadReplacement
from pcp.kernels.sites import Site as Site
from pcp.kernels.sites import UnknownSite as UnknownSite
from pcp.kernels.sites import apply_kernels as apply_kernels
from pcp.kernels.sites import look_at as look_at
from pcp.kernels.sites import missing_kernels as missing_kernels
from pcp.kernels.sites import replaced as replaced
from pcp.kernels.sites import sites_of as sites_of
