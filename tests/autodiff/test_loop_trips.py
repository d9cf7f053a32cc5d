"""How often a loop runs, from what it compares and adds."""

import math

import numpy as np
import pytest

import pcp
from pcp.autodiff.loops.trips import static_trips
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import main_of
from tests.execution import run


def text(condition: str, update: str, start: str = "0", dtype: str = "i32", bound: str = "%n") -> str:
    """A loop over x' = sin x whose condition and update of the counter %i are given; %m is captured, %b carried along."""
    return f"""func.func @main(%x: tensor<f64>, %n: tensor<{dtype}>) -> tensor<f64> {{
      %start = stablehlo.constant dense<{start}> : tensor<{dtype}>
      %one = stablehlo.constant dense<1> : tensor<{dtype}>
      %m = stablehlo.constant dense<7> : tensor<{dtype}>
      %three = stablehlo.add %one, %one : tensor<{dtype}>
      %r:3 = stablehlo.while(%i = %start, %v = %x, %b = {bound}) : tensor<{dtype}>, tensor<f64>, tensor<{dtype}>
      cond {{
        {condition}
        stablehlo.return %p : tensor<i1>
      }} do {{
        %w = stablehlo.sine %v : tensor<f64>
        {update}
        stablehlo.return %j, %w, %b : tensor<{dtype}>, tensor<f64>, tensor<{dtype}>
      }}
      return %r#1 : tensor<f64> }}"""


def compare(direction: str, left: str, right: str, dtype: str = "i32", name: str = "p") -> str:
    """A line that compares."""
    kind = f"(tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>"
    return f"%{name} = stablehlo.compare {direction}, {left}, {right} : {kind}"


def plus(amount: str = "%one", dtype: str = "i32") -> str:
    """A line that adds to the counter."""
    return f"%j = stablehlo.add %i, {amount} : tensor<{dtype}>"


def minus(amount: str = "%one", dtype: str = "i32") -> str:
    """A line that takes away from the counter."""
    return plus(amount, dtype).replace("add", "subtract")


def loop_of(module: ir.Module) -> ir.Operation:
    """The one loop of a module."""
    operations = [op.operation for op in main_of(module).regions[0].blocks[0].operations]
    (found,) = (op for op in operations if op.name == "stablehlo.while")
    return found


BOTH = f"""{compare("LT", "%i", "%m", name="a")}
  {compare("GE", "%i", "%three", name="b1")}
  %b2 = stablehlo.not %b1 : tensor<i1>
  %p = stablehlo.and %a, %b2 : tensor<i1>"""
TRUE = "%p = stablehlo.constant dense<true> : tensor<i1>"
FALSE = "%p = stablehlo.constant dense<false> : tensor<i1>"
LITERAL = "%k = stablehlo.constant dense<7> : tensor<i32>\n" + compare("LT", "%i", "%k")
DOWN = "%down = stablehlo.constant dense<255> : tensor<ui8>\n"
BY_TWO = "%two = stablehlo.constant dense<2> : tensor<i32>\n"


@pytest.mark.parametrize(
    ("program", "trips"),
    [
        (text(compare("LT", "%i", "%m"), plus()), 7),
        (text(LITERAL, plus()), 7),
        (text(compare("LT", "%i", "%b"), plus(), bound="%m"), 7),
        (text(compare("GT", "%m", "%i"), plus()), 7),
        (text(compare("GE", "%m", "%i"), "%j = stablehlo.add %one, %i : tensor<i32>"), 8),
        (text(compare("LE", "%i", "%m"), BY_TWO + plus("%two")), 4),
        (text(compare("LT", "%i", "%m"), plus("%three")), 4),
        (text(compare("NE", "%i", "%m"), plus()), 7),
        (text(compare("NE", "%m", "%i", "i64"), plus(dtype="i64"), "-3", "i64"), 10),
        (text(compare("EQ", "%i", "%m"), plus(), "7"), 1),
        (text(compare("EQ", "%i", "%m"), plus()), 0),
        (text(compare("LT", "%i", "%m"), plus(), "9"), 0),
        (text(compare("GT", "%i", "%m"), minus(), "12"), 5),
        (text(compare("GT", "%i", "%m", "ui32"), minus("%three", "ui32"), "12", "ui32"), 3),
        (text(compare("GT", "%i", "%m", "ui8"), DOWN + plus("%down", "ui8"), "12", "ui8"), 5),
        (text(BOTH, plus()), 2),
        (text(FALSE, plus()), 0),
        (text(TRUE, plus()), math.inf),
        (text(compare("LT", "%i", "%m"), minus()), math.inf),
        (text(compare("NE", "%i", "%m"), BY_TWO + plus("%two")), math.inf),
        (text(compare("LT", "%i", "%m"), "%j = stablehlo.negate %i : tensor<i32>"), None),
        (text(compare("LT", "%i", "%n"), plus()), None),
        (text(compare("LT", "%i", "%b"), plus()), None),
    ],
)  # fmt: skip
def test_the_number_of_trips(program: str, trips: float | None) -> None:
    module = pcp.Program.parse(program).module()
    assert static_trips(loop_of(module)) == trips


@pytest.mark.parametrize(
    ("direction", "step", "start", "dtype"),
    [("LT", 1, 0, "i32"), ("LE", 3, -4, "i64"), ("GT", -2, 5, "i32"), ("GE", -1, 6, "i64"), ("LT", 2, 1, "ui32")],
)  # fmt: skip
@pytest.mark.parametrize("swapped", [False, True])
def test_a_bound_that_is_an_argument(
    direction: str, step: int, start: int, dtype: str, swapped: bool
) -> None:
    sides = ("%n", "%i") if swapped else ("%i", "%n")
    written = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}[direction] if swapped else direction
    update = f"%s = stablehlo.constant dense<{step}> : tensor<{dtype}>\n" + plus("%s", dtype)
    source = text(compare(written, *sides, dtype), update, str(start), dtype)
    program = pcp.value_and_grad(pcp.Program.parse(source))
    # Forward, and segments, in each of which are one from its checkpoint, one that keeps residuals, and one backward.
    assert program.text.count("stablehlo.while") == 5
    holds = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__}[direction]
    for bound in (0, 1, 7, start, start + 1, start + 11):
        counter, trips = start, 0
        while holds(counter, bound):
            counter, trips = counter + step, trips + 1
        value, gradient = run(program, 2.0, bound)
        expected, slope = 2.0, 1.0
        for _ in range(trips):
            expected, slope = np.sin(expected), slope * np.cos(expected)
        np.testing.assert_allclose([value, gradient], [expected, slope], rtol=1e-13)


@pytest.mark.parametrize(
    "program", [text(TRUE, plus()), text(compare("LT", "%i", "%m"), minus())]
)  # fmt: skip
def test_a_loop_that_never_ends_is_refused(program: str) -> None:
    message = "stablehlo.while cannot be differentiated: this loop never ends: its condition stays true"
    with pytest.raises(pcp.autodiff.NoDerivative, match=message):
        pcp.grad(pcp.Program.parse(program))
