"""`import pcp` imports nothing yet; every name is there when asked for, and so is what one layer needs of a later one."""

import builtins
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax.ffi
import pytest

import pcp
from pcp import interface


def test_every_name_of_the_interface_is_one_of_pcp() -> None:
    names = {name for name in vars(interface) if not name.startswith("_")}
    assert {"Tensor", "trace", "plan", "nn", "matmul", "ProfileDatabase"} <= names
    assert all(getattr(pcp, name) is getattr(interface, name) for name in names)
    assert names <= set(dir(pcp))
    starred: dict[str, object] = {}
    exec("from pcp import *", starred)
    assert names <= set(starred)


def test_what_is_shown_is_what_is_meant() -> None:
    """Folders that users open, and functions, classes and numbers that the interface names; nothing that it is made with."""
    shown = dir(pcp)
    offered = {name for name in vars(interface) if not name.startswith("_")}
    assert shown == sorted(offered)
    assert {name for name in shown if isinstance(getattr(pcp, name), ModuleType)} == {
        "fft", "linalg", "models", "nn", "ops", "optimizers", "random", "rewrite",
    }  # fmt: skip
    assert [name for name in shown if name.startswith("_") or name.endswith("_")] == ["s_"]
    hidden = {"importlib", "turn", "folders", "abs_", "TYPE_CHECKING", "interface", "tensor", "annotations"}
    assert not hidden & set(shown)
    for name in ("abs", "all", "any", "divmod", "max", "min", "pow", "round", "sum"):
        assert getattr(pcp, name) is getattr(pcp.ops, name) is not getattr(builtins, name)


def test_a_name_that_pcp_has_not_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"module 'pcp' has no attribute 'tensro'"):
        _ = pcp.tensro
    assert not hasattr(pcp, "_private")


def in_a_process_of_its_own(program: str, *arguments: object) -> str:
    """What a program prints that has imported nothing before."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_importing_pcp_imports_no_other_library() -> None:
    program = (
        "import sys, pcp; print([m for m in ('jax', 'numpy', 'pcp.ir', 'pcp.interface') if m in sys.modules])"
    )
    assert in_a_process_of_its_own(program) == "[]\n"


def test_looking_for_builds_of_native_kernels_does_not_import_jax() -> None:
    program = (
        "import sys; from pcp.kernels.native import LIBRARIES, kept; kept(LIBRARIES['steps']); "
        "from pcp.kernels.native.building import _include; print('jax' in sys.modules, _include())"
    )
    assert in_a_process_of_its_own(program) == f"False {jax.ffi.include_dir()}\n"


def test_a_part_of_pcp_serves_alone(tmp_path: Path) -> None:
    """Operators, files of symbolic programs and functions of JAX belong to later layers, which nobody has imported."""
    file = tmp_path / "double.pcp"
    pcp.trace(lambda x: x + x, pcp.spec(("n",), "f32")).save(file)
    operators = "from pcp.tracing import spec, trace; print(trace(lambda x: x + x, spec((2,), 'f32')).digest)"
    double = pcp.trace(lambda x: x + x, pcp.spec((2,), "f32"))
    assert in_a_process_of_its_own(operators).strip() == double.digest
    load = (
        "import sys, numpy; from pcp.ir.program import load; program = load(sys.argv[1]).at(n=2); "
        "print(program.digest, program.to_jax()(numpy.float32([1, 2])).tolist())"
    )
    assert in_a_process_of_its_own(load, file).strip() == f"{double.digest} [2.0, 4.0]"
