"""Data flows one way through PCP: every part of src/pcp imports only parts that stand before it in `LAYERS`.

Imports are read from the syntax tree, so those inside functions and under TYPE_CHECKING count as well.
"""

import ast
import functools
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "pcp"

# What data meets first stands first. "interface" names what "pcp", the public face, offers: src/pcp/__init__.py.
LAYERS = (
    "errors", "systems", "nvidia", "interruption", "turn", "folders", "temporary", "processes", "foreign", "ir", "refusals",
    "symbolic", "methods", "protocols", "specs", "tensor", "tracing", "composites", "ops", "fft", "autodiff", "batching",
    "rewrite", "memory", "kernels", "backends", "planning", "calling", "nn", "models", "optimizers", "training", "inference",
    "importers", "diffusion", "linalg", "distributed", "interface", "pcp", "dashboard", "serving", "cli", "__main__",
)  # fmt: skip

# module prefix -> the files that may import it: the ones to change when jax changes. The first match decides.
CONFINED = {
    "jaxlib": ("ir/bindings.py", "backends/xla.py"),
    "jax._src": ("ir/bindings.py", "backends/xla.py", "kernels/jax_lowering.py"),
    "jax": ("ir/bindings.py", "backends/xla.py", "backends/jax*.py", "importers/jax*.py", "kernels/*"),
}


def imported_modules(path: Path, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """The line and the absolute dotted name of everything that a file in `package` imports."""
    return _imported_by(path.read_text(encoding="utf-8"), package)


@functools.cache  # a file is asked for once for every folder that it lies in
def _imported_by(text: str, package: tuple[str, ...]) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                found += [(node.lineno, alias.name) for alias in node.names]
            case ast.ImportFrom():
                base = package[: len(package) - node.level + 1] if node.level else ()
                module = ".".join((*base, *([node.module] if node.module else [])))
                found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
            case ast.Call(
                func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(str(name)), *_],
            ):
                found.append((node.lineno, name))
    return found


def layer_of(parts: tuple[str, ...], source: Path) -> str:
    """Return the layer of a dotted name below `pcp`; one that is no file there belongs to the public face."""
    if not parts:
        return "pcp"
    top = parts[0]
    is_part = top in LAYERS or (source / top).is_dir() or (source / f"{top}.py").is_file()
    return top if is_part else "pcp"


def complaint(file: str, layer: str, name: str, source: Path) -> str | None:
    """Say what is wrong with the import of `name` in `file`, or return None."""
    for prefix, allowed in CONFINED.items():
        if f"{name}.".startswith(f"{prefix}."):
            if any(fnmatch(file, pattern) for pattern in allowed):
                return None
            return f"{name} may be imported only by {', '.join(allowed)}"
    top, *rest = name.split(".")
    if top != "pcp":
        return None
    target = layer_of(tuple(rest), source)
    if target not in LAYERS:
        return f"'{target}' has no place in LAYERS of {Path(__file__).name}"
    if target != layer and LAYERS.index(target) >= LAYERS.index(layer):
        return f"'{layer}' imports {name}, but '{target}' comes later"
    return None


def violations(source: Path) -> list[str]:
    """Return every import below `source` that goes against the order, as `file:line: what is wrong`."""
    found = []
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source)
        layer = (
            "pcp"
            if file.name == "__init__.py" and len(file.parts) == 1
            else file.parts[0].removesuffix(".py")
        )
        if layer not in LAYERS:
            found.append(f"{file}:1: '{layer}' has no place in LAYERS of {Path(__file__).name}")
            continue
        for line, name in imported_modules(path, ("pcp", *file.parts[:-1])):
            if problem := complaint(file.as_posix(), layer, name, source):
                found.append(f"{file}:{line}: {problem}")
    return found


def test_every_part_imports_only_what_stands_before_it() -> None:
    assert violations(SOURCE) == []


def test_the_page_names_every_layer_in_this_order() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## The layers")[2].partition("\n## ")[0]
    named = [
        name.removesuffix("/").removesuffix(".py")
        for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
        for name in re.findall(r"`(.*?)`", row)
    ]
    here = [name for name in LAYERS if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()]
    assert sorted(named, key=[*here, "__init__"].index) == [*here, "__init__"]
    order = [here.index(name) for name in named if name not in ("__init__", "__main__")]
    assert order == sorted(order)


def planted(folder: Path, file: str, text: str) -> list[str]:
    """Return the violations of a small package in which `file` holds `text`."""
    for name in ("__init__.py", "errors.py", "ir/__init__.py", "ops/__init__.py", "nn/__init__.py", file):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / file).write_text(text, encoding="utf-8")
    return violations(folder)


@pytest.mark.parametrize(
    "text",
    [
        "import pcp.nn",
        "import pcp.nn.layers as layers",
        "from pcp import nn",
        "from pcp.nn import linear",
        "from .. import nn",
        "from ..nn import linear",
        "from ..nn.layers import linear",
        "def late():\n    from pcp.nn import linear\n    return linear",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..nn import Linear",
        "import importlib\nnn = importlib.import_module('pcp.nn')",
        "nn = __import__('pcp.nn')",
    ],
)
def test_an_import_of_a_later_part_is_found(tmp_path: Path, text: str) -> None:
    [problem] = planted(tmp_path, "ops/elementwise.py", text)
    assert "'ops' imports pcp.nn" in problem
    assert problem.endswith("'nn' comes later")


@pytest.mark.parametrize(
    "text",
    [
        "import numpy",
        "from pcp.errors import PCPError",
        "from pcp import ir",
        "from ..ir import Program",
        "from . import reduction",
        "from .reduction import total",
        "import pcpx.nn",
    ],
)
def test_an_import_of_an_earlier_part_or_of_another_library_is_fine(tmp_path: Path, text: str) -> None:
    assert planted(tmp_path, "ops/elementwise.py", text) == []


def test_the_public_face_is_for_users_and_the_command_line(tmp_path: Path) -> None:
    [problem] = planted(tmp_path, "ops/elementwise.py", "from pcp import Tensor")
    assert problem == "ops/elementwise.py:1: 'ops' imports pcp.Tensor, but 'pcp' comes later"
    (tmp_path / "ops/elementwise.py").unlink()
    assert planted(tmp_path, "cli/train.py", "from pcp import Tensor") == []


def test_a_part_without_a_place_in_the_order_is_found(tmp_path: Path) -> None:
    [problem] = planted(tmp_path, "novelty/thing.py", "import numpy")
    assert problem == "novelty/thing.py:1: 'novelty' has no place in LAYERS of test_layers.py"


@pytest.mark.parametrize(
    ("file", "text", "allowed"),
    [
        ("ir/bindings.py", "from jaxlib.mlir import ir", True),
        ("ir/types.py", "from jaxlib.mlir import ir", False),
        ("backends/xla.py", "from jax._src.lib import xla_client", True),
        ("backends/base.py", "from jax._src.lib import xla_client", False),
        ("backends/base.py", "import jax.numpy as jnp", False),
        ("importers/jax_functions.py", "import jax", True),
        ("importers/jax_functions.py", "from jax._src import core", False),
        ("importers/torch_modules.py", "import jax", False),
        ("kernels/attention/pallas.py", "from jax.experimental import pallas", True),
        ("kernels/attention/pallas.py", "import jaxlib", False),
    ],
)
def test_jax_stays_in_its_few_files(tmp_path: Path, file: str, text: str, allowed: bool) -> None:
    found = planted(tmp_path, file, text)
    assert (found == []) == allowed
    assert all("may be imported only by" in problem for problem in found)


# Folders in which some modules or folders hold one another; in the simulator a process and its world know each other's types.
HOLD_ONE_ANOTHER = (
    "autodiff", "distributed/coordinator", "distributed/simulator", "distributed/wire", "ir", "kernels", "training",
)  # fmt: skip


def imports_within(folder: Path, package: tuple[str, ...]) -> dict[str, set[str]]:
    """For each module and folder of a folder, those beside it that it imports, wherever the import stands."""
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    found = {}
    for name in sorted(names - {"__init__"}):
        files = (
            [folder / f"{name}.py"] if (folder / f"{name}.py").is_file() else (folder / name).rglob("*.py")
        )
        heads = [
            imported.split(".")
            for file in files
            for _, imported in imported_modules(file, (*package, *file.relative_to(folder).parts[:-1]))
        ]
        depth = len(package)
        found[name] = {
            head[depth]
            for head in heads
            if tuple(head[:depth]) == package and len(head) > depth and head[depth] in names - {name}
        }
    return found


def circles(source: Path) -> list[str]:
    """Return a circle of imports for every module or folder that imports itself by way of others beside it."""
    found = []
    for folder in sorted({path.parent for path in source.rglob("*.py")}):
        place = folder.relative_to(source)
        imports = imports_within(folder, ("pcp", *place.parts))
        for module in imports:
            ways = {module: [module]}
            waiting = [module]
            while waiting:
                for following in sorted(imports[last := waiting.pop(0)]):
                    if following == module:
                        found.append(f"{place.as_posix()}: {' -> '.join([*ways[last], module])}")
                        waiting.clear()
                        break
                    if following not in ways:
                        ways[following] = [*ways[last], following]
                        waiting.append(following)
    return found


def test_no_modules_or_folders_beside_one_another_import_one_another() -> None:
    found = circles(SOURCE)
    assert [circle for circle in found if circle.partition(":")[0] not in HOLD_ONE_ANOTHER] == []
    gone = [
        place for place in HOLD_ONE_ANOTHER if not any(circle.startswith(f"{place}:") for circle in found)
    ]
    assert gone == [], "these folders have no circles any more; strike them from HOLD_ONE_ANOTHER"


@pytest.mark.parametrize(
    "text",
    [
        "import pcp.ops.reduction",
        "from pcp.ops import reduction",
        "from pcp.ops.reduction import total",
        "from . import reduction",
        "from .reduction import total",
        "def late():\n    from pcp.ops.reduction import total\n    return total",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pcp.ops.reduction import Total",
    ],
)
def test_a_circle_of_imports_is_found(tmp_path: Path, text: str) -> None:
    planted(tmp_path, "ops/reduction.py", "from pcp.ops.middle import step")
    planted(tmp_path, "ops/middle.py", "from pcp.ops.elementwise import add")
    planted(tmp_path, "ops/elementwise.py", "")
    assert circles(tmp_path) == []
    planted(tmp_path, "ops/elementwise.py", text)
    assert "ops: elementwise -> reduction -> middle -> elementwise" in circles(tmp_path)


def test_a_circle_of_folders_is_found(tmp_path: Path) -> None:
    planted(tmp_path, "ops/linear/products.py", "from pcp.ops.movement import reshape")
    planted(tmp_path, "ops/movement.py", "from pcp.ops.reductions.sums import total")
    planted(tmp_path, "ops/reductions/sums.py", "from . import means")
    planted(tmp_path, "ops/reductions/means.py", "from .sums import total")
    assert circles(tmp_path) == [
        "ops/reductions: means -> sums -> means",
        "ops/reductions: sums -> means -> sums",
    ]
    planted(tmp_path, "ops/reductions/means.py", "from ..linear.products import product")
    assert "ops: linear -> movement -> reductions -> linear" in circles(tmp_path)
