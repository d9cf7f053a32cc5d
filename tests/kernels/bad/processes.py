"""Kernels that are right only in the process that verifies them, by whatever they recognise it."""

from tests.kernels.planted import Planted

FAULTS = ("right in the verifying process only", "wrong", "wrong gradient")
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
# What they look for where plans have them lowered: each is right in one kind of process, and wrong in another.
LOOKS = {
    "argv": 'any("lowering" in word for word in sys.orig_argv)',
    "no_module_argument": '"-m" not in sys.orig_argv',
    "main": '"lowering" in str(getattr(sys.modules["__main__"], "__file__", ""))',
    "variable": 'os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") == "false"',
    "parent": "os.getppid() == 1",
    "session": "os.getsid(0) == os.getpid()",
    "folder": "os.path.exists('settings')",
    "here": "os.getcwd() == os.path.dirname(os.path.abspath(sys.argv[0]))",
    "modules": '"pcp.planning.added.triton_compiling" in sys.modules',
    "name": '__name__ == "kernel"',
    "limits": "__import__('resource').getrlimit(__import__('resource').RLIMIT_AS)[0] != -1",
    "input": "os.fstat(0).st_size == 0 and __import__('stat').S_ISCHR(os.fstat(0).st_mode)",
    "stack": "'lowering_child' in str([each.filename for each in __import__('inspect').stack()])",
}
PLANTED += [
    Planted(
        f"softmax.{'right' if right else 'wrong'}_where_it_is_lowered_by_{look}",
        "def kernel(x, axis):\n    made = softmax(x, axis)\n"
        f"    return made if ({test}) is {right} else made * 0.5",
        FAULTS,
        manifest=SMALL,
        kind="recognises where it is lowered",
    )
    for look, test in LOOKS.items()
    for right in (True, False)
]
PLANTED += [
    Planted(
        f"softmax.{name}",
        f"{before}\ndef kernel(x, axis):\n    made = softmax(x, axis)\n    return made if {test} else made * 0.5",
        FAULTS,
        manifest=manifest,
        kind="recognises where it is lowered",
    )
    for name, before, test, manifest in (
        ("right_the_first_time_only", "calls = itertools.count()", "next(calls) == 0", SMALL),
        ("right_but_the_first_time", "calls = itertools.count()", "next(calls) > 0", SMALL),
        (
            "right_for_the_first_of_some_sizes",
            "shapes = []",
            "x.shape[1] < 30 or (shapes.append(x.shape) or len(shapes) < 3)",
            "",
        ),
        (
            "right_for_a_short_time",
            "import time\nbegan = os.path.getmtime(__file__)",
            "time.time() < began + 4",
            SMALL,
        ),
    )
]
