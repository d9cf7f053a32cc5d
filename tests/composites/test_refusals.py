"""What is wrong with a composite or its derivative is said with its name and the user's line."""

from typing import Any

import pytest

import pcp
from pcp.composites import InvalidComposite, InvalidDerivative
from pcp.ir.expecting import ProgramExpected

X = pcp.spec((3,), "f32")


def made(function: Any = lambda x: x * 2) -> Any:
    return pcp.composite("mine.it")(function)


@pytest.mark.parametrize("name", ["plain", "", "mine.", ".it", 3, "mïne.it"])
def test_a_name_has_a_dot(name: Any) -> None:
    with pytest.raises(InvalidComposite, match=r"expected a name with a dot, as 'mine\.swish'"):
        pcp.composite(name)


def test_names_of_pcp_are_its_own() -> None:
    with pytest.raises(
        InvalidComposite, match=r"'pcp\.softmax' was given; names that begin with 'pcp\.' are PCP's own"
    ):
        pcp.composite("pcp.softmax")


def test_what_is_decorated_is_a_function() -> None:
    with pytest.raises(ProgramExpected, match=r"pcp\.composite takes a function of Tensors"):
        pcp.composite("mine.it")(3)
    with pytest.raises(ProgramExpected, match="defvjp takes two functions of Tensors"):
        made().defvjp(lambda x: (x, ()), None)
    with pytest.raises(ProgramExpected, match="defjvp takes a function of Tensors"):
        made().defjvp("f")


ATTRIBUTES: dict[str, tuple[dict[str, Any], str]] = {
    "a list of texts": ({"k": ["a"]}, r"k=\('a',\) was given"),
    "an object": ({"k": object()}, "k=object was given"),
    "a large number": ({"k": 2**63}, f"k={2**63} was given"),
    "a symbol": ({"k": "@main"}, "k='@main' was given"),
    "a derivative": ({"bwd": 1}, "bwd=1 was given.*a name besides jvp, fwd, bwd"),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_what_a_program_can_say(name: str) -> None:
    given, message = ATTRIBUTES[name]
    it = made(lambda x, **_: x * 2)
    with pytest.raises(InvalidComposite, match=rf"(?s)'mine\.it': {message}.*test_refusals\.py"):
        pcp.trace(lambda x: it(x, **given), X)


def test_a_tensor_is_no_attribute() -> None:
    it = made(lambda x, *, k: x * k)
    with pytest.raises(
        InvalidComposite, match=r"k=Tensor\(f32\[3\]\) was given.*Tensors are positional arguments"
    ):
        pcp.trace(lambda x: it(x, k=x), X)


def test_arguments_that_the_function_does_not_take() -> None:
    with pytest.raises(
        InvalidComposite, match=r"(?s)'mine\.it': missing a required argument: 'x'.*test_refusals\.py"
    ):
        pcp.trace(lambda _: made()(), X)


def test_a_composite_uses_its_arguments_only() -> None:
    message = r"'mine\.it' uses Tensor\(f32\[3\]\) of the function around it.*pass it as one"
    with pytest.raises(InvalidComposite, match=message):
        pcp.trace(lambda x: made(lambda y: y + x)(x * 2), X)
    it = made()

    def loss(x: Any) -> Any:
        it.defvjp(lambda y: (y, ()), lambda _, g: (g * x,))
        return it(x)

    with pytest.raises(InvalidComposite, match=r"the backward of the composite 'mine\.it' uses"):
        pcp.trace(loss, X)


def test_a_composite_returns_something() -> None:
    with pytest.raises(InvalidComposite, match=r"'mine\.it' returns nothing"):
        pcp.trace(lambda x: made(lambda _: ())(x), X)


def test_a_failure_inside_leaves_the_trace_as_it_was() -> None:
    def failing(_: Any) -> Any:
        raise ZeroDivisionError

    def function(x: Any) -> Any:
        with pytest.raises(ZeroDivisionError):
            made(failing)(x)
        return x + 1

    assert "private" not in pcp.trace(function, X).text


def test_one_derivative_is_enough() -> None:
    it = made()
    it.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    with pytest.raises(
        InvalidDerivative, match=r"'mine\.it' has a derivative already.*defvjp or defjvp, once"
    ):
        it.defvjp(lambda x: (x, ()), lambda _, g: (g,))


def good_forward(x: Any) -> Any:
    return x, (x,)


# name: forward, backward, message
PULLED: dict[str, tuple[Any, Any, str]] = {
    "no pair": (lambda x: x, None, r"forward \(.*test_refusals\.py:\d+\) returned Tensor\(f32\[3\]\); expected a pair"),
    "another shape": (lambda x: (x.sum(), ()), None, r"forward .* returned a result that is f32\[\]; expected f32\[3\]"),
    "another nesting": (lambda x: ([x], ()), None, r"forward .* returned a result that is nested as .*; expected"),
    "a text to keep": (lambda x: (x, "text"), None, "forward .* returned str as a residual; expected nested Tensors"),
    "no tuple": (good_forward, lambda _, g: g, r"backward .* returned Tensor\(f32\[3\]\); expected a tuple of 1"),
    "too many": (good_forward, lambda _, g: (g, g), "backward .* returned a tuple of 2; expected a tuple of 1"),
    "a smaller one": (
        good_forward, lambda _, g: (g.sum(),), r"a cotangent of argument 0 that is f32\[\]; expected f32\[3\]",
    ),
    "a wider one": (
        good_forward, lambda _, g: (g.astype("f64"),), r"a cotangent of argument 0 that is f64\[3\]; expected f32\[3\]",
    ),
    "a text": (good_forward, lambda *_: ("text",), r"argument 0 that is str; expected f32\[3\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", PULLED)
def test_what_a_pull_back_returns(name: str) -> None:
    forward, backward, message = PULLED[name]
    it = made()
    it.defvjp(forward, backward or (lambda _, g: (g,)))
    with pytest.raises(
        InvalidDerivative, match=rf"(?s)the composite 'mine\.it': its .*{message}.*at .*test_refusals\.py"
    ) as e:
        pcp.trace(lambda x: it(x), X)
    assert "test_refusals.py" in str(e.value)


def test_a_cotangent_is_nested_like_its_argument() -> None:
    it = made(lambda pair: pair["a"] * pair["b"])
    it.defvjp(lambda p: (p["a"] * p["b"], ()), lambda _, g: ((g, g),))
    with pytest.raises(InvalidDerivative, match=r"a cotangent nested as .* for argument 0; expected"):
        pcp.trace(lambda x: it({"a": x, "b": x}), X)


PUSHED: dict[str, tuple[Any, str]] = {
    "no pair": (
        lambda _, t: t[0],
        r"returned Tensor\(f32\[3\]\); expected a pair: the result, and its tangent",
    ),
    "another result": (lambda p, t: (p[0].sum(), t[0]), r"a result that is f32\[\]; expected f32\[3\]"),
    "another tangent": (lambda p, t: (p[0], t[0].sum()), r"a tangent that is f32\[\]; expected f32\[3\]"),
}


@pytest.mark.parametrize("name", PUSHED)
def test_what_a_push_forward_returns(name: str) -> None:
    jvp, message = PUSHED[name]
    it = made()
    it.defjvp(jvp)
    with pytest.raises(InvalidDerivative, match=rf"(?s)'mine\.it': its jvp .*{message}.*test_refusals\.py"):
        pcp.trace(lambda x: it(x), X)


def test_a_tangent_is_nested_like_the_result() -> None:
    it = made(lambda x: {"y": x * 2})
    it.defjvp(lambda p, t: ({"y": p[0]}, [t[0]]))
    with pytest.raises(InvalidDerivative, match=r"a tangent nested as .*; expected"):
        pcp.trace(lambda x: it(x), X)
