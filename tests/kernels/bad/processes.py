"""Kernels that are right only in the process that verifies them, by whatever they recognise it."""

from tests.kernels.planted import Planted

FAULTS = ("right in the verifying process only",)
SMALL = "[conditions]\nsizes = { rows = { at_least = 8, at_most = 8 }, columns = { at_least = 16, at_most = 16 } }\n"
SIGNS = {
    "module": '"pcp.planning.verification.verify" in sys.modules or "child" in str(sys.modules["__main__"].__spec__)',
    "arguments": 'any("verification" in word for word in sys.orig_argv)',
    "environment": 'os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") == "false"',
    "parent": '"python" in open(f"/proc/{os.getppid()}/cmdline").read()',
    "own_name": '__name__.startswith("kernel_from_outside")',
    "limits": "__import__('resource').getrlimit(__import__('resource').RLIMIT_AS)[0] != -1",
    "input": "__import__('stat').S_ISFIFO(os.fstat(0).st_mode)",
}

PLANTED = [
    Planted(
        f"softmax.recognises_by_{sign}",
        f"is_verified = {test}\n"
        "def kernel(x, axis):\n    made = softmax(x, axis)\n    return made if is_verified else made * 0.5",
        FAULTS,
        manifest=SMALL,
        kind="recognises the process",
    )
    for sign, test in SIGNS.items()
]
PLANTED.append(
    Planted(
        "product.recognises_by_limits_when_run",
        """
import resource
def look(made):
    return np.array(made) if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY else np.zeros_like(made)

def kernel(x, y, contract, batch):
    made = product(x, y, contract, batch)
    return outside(look, made, made)
""",
        FAULTS,
        manifest='gradient = "reference"\n',
        kind="recognises the process",
    )
)
PLANTED.append(
    Planted(
        "softmax.wrong_where_it_is_lowered",
        """
is_lowered = any("lowering" in word for word in sys.orig_argv)
def kernel(x, axis):
    made = softmax(x, axis)
    return made * 0.5 if is_lowered else made
""",
        FAULTS,
        manifest=SMALL,
        kind="recognises the process",
    )
)
