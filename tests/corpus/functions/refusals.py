"""What PCP must refuse, and what only PCP differentiates in reverse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.corpus.arguments import integers, normal, positive, together
from tests.corpus.case import Case, Refusal

_M = normal((3, 4))


def _foreign(x: Any) -> Any:
    return jax.ffi.ffi_call("corpus_of_nowhere", jax.ShapeDtypeStruct(x.shape, x.dtype))(x) * x


def _called_back(x: Any) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * x


def _root(x: Any) -> Any:
    """Newton's iteration until it stands still."""

    def moves(state: Any) -> Any:
        return abs(state[0] - state[1]) > 1e-13 * state[0]

    return lax.while_loop(moves, lambda s: (0.5 * (s[0] + x / s[0]), s[0]), (1.0 + x, x * 0))[0]


def _halved(x: Any) -> Any:
    return lax.while_loop(lambda s: (s**2).sum() > 0.1, lambda s: s * 0.5 + 0.01 * x, x)


def _halved_unrolled(x: Any) -> Any:
    s = x
    for _ in range(20):
        s = jnp.where((s**2).sum() > 0.1, s * 0.5 + 0.01 * x, s)
    return s


CASES = [
    Case(
        "unknown_custom_call",
        _foreign,
        _M,
        refusal=Refusal("NoDerivative", "corpus_of_nowhere"),
        note="nobody registered a rule",
    ),
    Case(
        "python_callback",
        _called_back,
        _M,
        refusal=Refusal("NotImportable", "callback"),
        note="Python code is no part of a program",
    ),
    Case(
        "integers_in_wrt",
        lambda x, i: x[i],
        together(_M, integers(0, 3, (2,))),
        wrt=(0, 1),
        refusal=Refusal("NotDifferentiable", "only floating-point"),
        note="integers have no gradient",
    ),
    Case(
        "argument_that_is_none",
        lambda x: x * 2,
        _M,
        wrt=(1,),
        refusal=Refusal("UnknownArgument", "the program has 1"),
        note="there is no argument 1",
    ),
    Case(
        "next_representable_number",
        lambda x: jnp.nextafter(x, 9.0) * x,
        _M,
        reference=lambda x: jnp.nextafter(lax.stop_gradient(x), 9.0) * x,
    ),
    Case(
        "random_bound",
        lambda x, k: jax.random.truncated_normal(jax.random.wrap_key_data(k), x, 3.0),
        together(_M, lambda _: (np.array([0, 3], np.uint32),)),
    ),
    Case("loop_until_convergence", _root, positive(()), reference=jnp.sqrt),
    Case("loop_until_small", _halved, _M, reference=_halved_unrolled),
]
