"""Something else given where a program, a function, an optimizer, a schedule or an example is expected."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.ir import ProgramExpected, TreeMismatch
from pcp.optimizers import InvalidOptimizer, InvalidSchedule, WarmupCosine, adamw, sgd
from pcp.planning.arguments import ArgumentDTypeMismatch, ArgumentShapeMismatch
from pcp.planning.conditions import InvalidExample
from pcp.planning.exploration.exploration import explore
from pcp.refusals import ShapeMismatch, is_of_package

PROGRAM = pcp.trace(lambda x, n: (x * n).sum(), pcp.spec((2, 3), "f32"), pcp.spec((), "f32"))
X = np.random.default_rng().standard_normal((2, 3)).astype(np.float32)


class Module:
    """Stands for a module of PyTorch."""

    def __call__(self, x: Any) -> Any:
        return x


Module.__module__ = "torch.nn.modules.linear"

THINGS = [
    ("step.pcp", r"the text 'step.pcp' was given: read a file with pcp.load\(file\)"),
    (Path("step.pcp"), r"the file name 'step.pcp' was given: read a file with pcp.load\(file\)"),
    (
        Module(),
        r"a torch.nn.modules.linear.Module was given: make a Program of a module with pcp.from_torch\(",
    ),
    (3, "an int was given: programs come from pcp.trace, pcp.load, pcp.from_jax and pcp.from_torch"),
]


FUNCTIONS = [
    (jax.jit(lambda x: x), r"make a Program of a function of JAX with pcp.from_jax\(function"),
    (lambda x: x, r"pcp.trace\(function, specs\.\.\.\)"),
]


@pytest.mark.parametrize(("thing", "match"), [*THINGS, *FUNCTIONS])
def test_no_program(thing: Any, match: str) -> None:
    with pytest.raises(ProgramExpected, match=rf"pcp.explore takes a Program; .*{match}"):
        explore(thing)


@pytest.mark.parametrize(("thing", "match"), THINGS)
def test_no_function(thing: Any, match: str) -> None:
    takers: list[Any] = [
        pcp.grad, pcp.value_and_grad, pcp.jvp, pcp.vjp, pcp.vmap, pcp.trace, pcp.plan, pcp.jit
    ]  # fmt: skip
    for take in takers:
        with pytest.raises(ProgramExpected, match=rf"pcp.{take.__name__} takes a .*{match}"):
            take(thing)
    with pytest.raises(ProgramExpected, match=rf"pcp.training_step takes a Program or a function.*{match}"):
        pcp.training_step(thing, adamw(1e-3))


def test_a_program_is_traced_with_its_own_arguments() -> None:
    with pytest.raises(TreeMismatch, match="argument is a tuple of 1, but the program expects a tuple of 2"):
        pcp.trace(PROGRAM, X)


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": "1e-3"},
        {"learning_rate": None},
        {"learning_rate": True},
        {"learning_rate": float("nan")},
        {"learning_rate": -1.0},
        {"betas": 0.9},
        {"betas": (0.9,)},
        {"betas": ("0.9", 0.99)},
        {"epsilon": "1e-8"},
        {"weight_decay": None},
        {"weight_decay": float("inf")},
        {"decays": "matrices"},
    ],
)
def test_settings_of_adamw(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptimizer, match=r"AdamW\(.*\): expected "):
        adamw(**({"learning_rate": 1e-3} | settings))


def test_settings_of_others() -> None:
    wrong: Any = "0.9"
    with pytest.raises(InvalidOptimizer, match="a momentum of at least 0 and below 1"):
        sgd(0.1, momentum=wrong)
    for entries in [("1e-3", 1, 10), (1e-3, "1", 10), (1e-3, 1, None), (1e-3, 10, 1)]:
        with pytest.raises(
            InvalidSchedule, match=r"expected 0 <= warmup_steps < total_steps and rates .* all numbers"
        ):
            WarmupCosine(*entries)
    step = pcp.spec((2, 3), "f32")
    named = {
        "adamw": "adamw(1e-3)",
        "sgdd": "sgd(1e-3)",
        "Muon": "muon(pcp.optimizers.adamw(1e-3))",
        "?": "adamw(1e-3)",
    }
    others = {
        adamw: "adamw(1e-3)",
        None: "adamw(1e-3)",
        pcp.optimizers.AdamW: "adamw(1e-3)",
        pcp.optimizers.lion: "lion(1e-3)",
    }
    for optimizer, meant in (named | others).items():
        words = f"the optimizer is {optimizer!r:.60}; expected one as pcp.optimizers.{meant} makes"
        with pytest.raises(InvalidOptimizer, match=re.escape(words)):
            pcp.training_step(lambda w: w.sum(), optimizer, step)


@pytest.mark.parametrize(
    ("example", "error", "match"),
    [
        ("ab", InvalidExample, "the example is a str; expected a tuple of one call's arguments: 2"),
        ({"x": X, "n": 1.0}, InvalidExample, "the example is a dict; expected a tuple"),
        (X, InvalidExample, "the example is a ndarray; expected a tuple"),
        ((X,), TreeMismatch, "the program expects"),
        (({"x": X}, 1.0), TreeMismatch, "but the program expects an array"),
        ((X, "1"), ArgumentDTypeMismatch, "argument n is '1'; expected an array of"),
        ((X.astype(np.float64), 1.0), ArgumentDTypeMismatch, r"convert it with .astype\('float32'\)"),
        ((X[:1], 1.0), ArgumentShapeMismatch, r"has shape \(1, 3\)"),
        ((X, 1j), ArgumentDTypeMismatch, "element type complex128"),
        ((X, object()), ArgumentDTypeMismatch, "argument n is a object; expected an array"),
    ],
)
def test_examples(example: Any, error: type[Exception], match: str, tmp_path: Path) -> None:
    database = tmp_path / "profile.sqlite"
    with pytest.raises(error, match=match):
        pcp.plan(PROGRAM, tolerance=1e-2, example=example, database=database, budget=0)
    with pytest.raises(error, match=match):
        list(explore(PROGRAM, example=example, database=database, budget=0))


def test_a_folder_beside_the_package_is_the_users() -> None:
    """Such as pcp_project beside pcp: the line that an error names is in it, and not in its caller."""
    package = Path(pcp.__file__).parent
    module: dict[str, Any] = {}
    source = "def crooked(x, y):\n    return x + y\n"
    exec(compile(source, f"{package}_project/model.py", "exec"), module)
    with pytest.raises(ShapeMismatch) as raised:
        pcp.trace(module["crooked"], pcp.spec((2, 3), "f32"), pcp.spec((2, 4), "f32"))
    assert "_project/model.py:2, in crooked" in str(raised.value)


def test_the_package_is_known_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(Path(pcp.__file__).parent)
    assert is_of_package(str(tmp_path / "link" / "ops" / "elementwise.py"))
    assert not is_of_package(__file__)
    assert not is_of_package(f"{Path(pcp.__file__).parent}-extra/model.py")
