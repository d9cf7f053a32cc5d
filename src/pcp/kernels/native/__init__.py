"""Native kernels: C++ of PCP's own behind XLA's foreign function interface, built for this processor and called by its digest.

What travels is the name of a handler and the digest of a build, `pcp.norm@4f...`: never a library. Whichever process
compiles a program with such a call (a plan's own, the one that measures, a Worker) loads the library from its own machine's
folder of builds, by that digest.
"""

from pcp.kernels.native.building import Build as Build
from pcp.kernels.native.building import BuildFailed as BuildFailed
from pcp.kernels.native.building import NativeUnavailable as NativeUnavailable
from pcp.kernels.native.building import NoCompiler as NoCompiler
from pcp.kernels.native.building import build_of as build_of
from pcp.kernels.native.building import built as built
from pcp.kernels.native.building import built_from as built_from
from pcp.kernels.native.building import compiler_here as compiler_here
from pcp.kernels.native.building import discard as discard
from pcp.kernels.native.building import is_unbuilt as is_unbuilt
from pcp.kernels.native.building import kept as kept
from pcp.kernels.native.building import missing as missing
from pcp.kernels.native.calling import call_build as call_build
from pcp.kernels.native.calling import native_call as native_call
from pcp.kernels.native.libraries import LIBRARIES as LIBRARIES
from pcp.kernels.native.libraries import Library as Library
from pcp.kernels.native.loading import LibraryDamaged as LibraryDamaged
from pcp.kernels.native.loading import LibraryNotBuilt as LibraryNotBuilt
from pcp.kernels.native.loading import is_admitted as is_admitted
from pcp.kernels.native.loading import load_for as load_for
from pcp.kernels.native.loading import opened as opened
