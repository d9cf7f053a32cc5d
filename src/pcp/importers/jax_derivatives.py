"""What a function of JAX says about its own derivative, carried into the Program.

JAX keeps `stop_gradient` and functions with rules of their own (`jax.custom_jvp`, `jax.custom_vjp`, `custom_linear_solve`) as
equations until it lowers them, and then forgets. So, before that, these equations are replaced, in loops and branches, too:
`stop_gradient` by the mark that PCP has for it, the others by composites. The derivative of such an equation is what
`jax.jvp` or `jax.vjp` says of it alone; it is lowered as a module of its own, whose function the composite then names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.interpreters import mlir

from pcp.importers.imported_module import clean
from pcp.ir.bindings import bytecode_of, context, ir, parse_module
from pcp.ir.builder import Builder
from pcp.ir.called_functions import copy_functions
from pcp.ir.composites import COMPOSITE, private_function
from pcp.ir.custom_derivatives import ORDERS, attributes_of_derivative
from pcp.ir.toolkit.attributes import integer_of
from pcp.ir.toolkit.functions import function_type, main_of
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.movement.shape import STOP_GRADIENT

PUSHED = (
    "custom_jvp_call",
    "random_gamma",
    "igamma",
    "igammac",
    "igamma_grad_a",
    "regularized_incomplete_beta",
    "bessel_i0e",
)
"""What JAX differentiates forward by a rule; operations among them are lowered to loops, whose derivative is another."""
PULLED = ("custom_vjp_call", "custom_linear_solve", "linear_call")
_KEY = "pcp.derivative"
"""The attribute by which a composite finds its derivative once the module is lowered."""


@dataclass(frozen=True)
class Derivative:
    """The derivative of one equation.

    Arguments:
        name: what the user calls the function.
        modules: bytecode of the functions `jvp`, or `fwd` and `bwd`; see `pcp.ir.custom_derivatives`.
    """

    name: str
    modules: dict[str, bytes]


class CustomDerivatives:
    """The derivatives that the equations of one function bring along.

    Arguments:
        platform: that the function is lowered for.
    """

    def __init__(self, platform: str) -> None:
        self._platform = platform
        self._derivatives: list[Derivative] = []
        self._rewritten: dict[
            tuple[int, int], tuple[Any, Any]
        ] = {}  # with the key, so that its id stays taken
        self._lowered: dict[str, bytes] = {}
        self._attached: dict[int, dict[str, str]] = {}

    def kept(self, closed: Any, order: int = ORDERS) -> Any:
        """A closed jaxpr in which derivatives are marked; the same where there are none."""
        jaxpr = self._jaxpr(closed.jaxpr, order)
        return closed if jaxpr is closed.jaxpr else jex.ClosedJaxpr(jaxpr, closed.consts)

    def attach(self, module: ir.Module) -> None:
        """Let every marked composite of a module name the functions that are its derivative, which are added to it."""
        self._attached = {}
        self._attach(module)

    def _jaxpr(self, jaxpr: Any, order: int) -> Any:
        known = self._rewritten.get((id(jaxpr), order))
        if known is None:
            equations = [self._equation(equation, order) for equation in jaxpr.eqns]
            same = all(new is old for new, old in zip(equations, jaxpr.eqns, strict=True))
            known = jaxpr, jaxpr if same else jaxpr.replace(eqns=equations)
            self._rewritten[id(jaxpr), order] = known
        return known[1]

    def _equation(self, equation: Any, order: int) -> Any:
        name = equation.primitive.name
        if name == "stop_gradient":
            return equation.replace(primitive=_STOP, params={})
        if name in PUSHED + PULLED:
            return self._marked(equation, order)
        params = {key: self._parameter(value, order) for key, value in equation.params.items()}
        same = all(params[key] is value for key, value in equation.params.items())
        return equation if same else equation.replace(params=params)

    def _parameter(self, value: Any, order: int) -> Any:
        """A parameter of an equation: jaxprs, as they are or in tuples, are rewritten."""
        if isinstance(value, jex.ClosedJaxpr):
            return self._closed(value, order)
        if isinstance(value, jex.Jaxpr):
            return self._jaxpr(value, order)
        if isinstance(value, tuple) and any(
            isinstance(entry, jex.ClosedJaxpr | jex.Jaxpr) for entry in value
        ):
            entries = [self._parameter(entry, order) for entry in value]
            same = all(new is old for new, old in zip(entries, value, strict=True))
            return value if same else type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
        return value

    def _closed(self, closed: Any, order: int) -> Any:
        # One object for one object: JAX lowers a function that is called often, once.
        known = self._rewritten.get((id(closed), order))
        if known is None:
            known = self._rewritten[id(closed), order] = closed, self.kept(closed, order)
        return known[1]

    def _marked(self, equation: Any, order: int) -> Any:
        alone = _alone(equation)
        self._derivatives.append(Derivative(_name_of(equation), self._modules(equation, alone, order)))
        marks = {"jaxpr": alone, "name": self._derivatives[-1].name, "key": len(self._derivatives) - 1}
        return equation.replace(invars=alone.jaxpr.invars, primitive=_CUSTOM, params=marks)

    def _modules(self, equation: Any, alone: Any, order: int) -> dict[str, bytes]:
        if order == 0:
            return {}
        function, structs = jex.jaxpr_as_fun(alone), [_struct_of(v.aval) for v in alone.jaxpr.invars]
        moving = [i for i, struct in enumerate(structs) if _is_inexact(struct)]
        returned = [i for i, v in enumerate(alone.jaxpr.outvars) if _is_inexact(v.aval)]

        def split(values: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
            """The function of what moves alone, and that."""

            def of_moving(*moved: Any) -> Any:
                whole = list(values)
                for place, value in zip(moving, moved, strict=True):
                    whole[place] = value
                return function(*whole)

            return of_moving, [values[i] for i in moving]

        if equation.primitive.name in PUSHED:

            def pushed(*values: Any) -> list[Any]:
                of_moving, primals = split(values[: len(structs)])
                _, tangents = jax.jvp(of_moving, primals, list(values[len(structs) :]))
                return [tangents[i] for i in returned]

            try:
                return {"jvp": self._lower(pushed, [*structs, *(structs[i] for i in moving)], order)}
            except NotImplementedError:  # JAX itself has no rule
                return {}

        outputs = [_struct_of(v.aval) for v in alone.jaxpr.outvars]
        pullback: list[Any] = []

        def forward(*values: Any) -> list[Any]:
            of_moving, primals = split(values)
            outputs_of_primals, pull = jax.vjp(of_moving, *primals)
            residuals, structure = jax.tree.flatten(pull)
            pullback[:] = [structure]
            return [*outputs_of_primals, *residuals]

        def backward(*values: Any) -> list[Any]:
            count = len(values) - len(returned)
            cotangents: list[Any] = [np.zeros(struct.shape, jax.dtypes.float0) for struct in outputs]
            for place, value in zip(returned, values[count:], strict=True):
                cotangents[place] = value
            return list(pullback[0].unflatten(values[:count])(cotangents))

        after_forward = jax.eval_shape(forward, *structs)
        residuals = [_struct_of(struct) for struct in after_forward[len(outputs) :]]
        return {
            "fwd": self._lower(forward, structs, order),
            "bwd": self._lower(backward, [*residuals, *(outputs[i] for i in returned)], order),
        }

    def _lower(self, function: Callable[..., Any], structs: Sequence[Any], order: int) -> bytes:
        """Bytecode of a function of one of a derivative."""
        closed = self.kept(_without_dead(jax.make_jaxpr(function)(*structs)), order - 1)
        text = str(closed)
        if closed.consts or text not in self._lowered:
            traced = jax.jit(jex.jaxpr_as_fun(closed), keep_unused=True).trace(*structs)
            module = traced.lower(lowering_platforms=(self._platform,)).compiler_ir("stablehlo")
            self._lowered[text] = bytecode_of(module)
        return self._lowered[text]

    def _attach(self, module: ir.Module) -> None:
        for op in _composites(module):
            key = integer_of(ir.DictAttr(op.attributes["composite_attributes"])[_KEY])
            derivative = self._derivatives[key]
            if key not in self._attached:
                symbols = {
                    kind: self._added(module, f"{derivative.name}.{kind}", bytecode)
                    for kind, bytecode in derivative.modules.items()
                }
                self._attached[key] = symbols
            with context():
                attributes = attributes_of_derivative(self._attached[key])
                op.attributes["composite_attributes"] = ir.DictAttr.get(attributes)

    def _added(self, module: ir.Module, name: str, bytecode: bytes) -> str:
        """Add the function of another module to a module; returns its symbol."""
        source = parse_module(bytecode)
        clean(source)
        inner = CustomDerivatives(self._platform)
        inner._derivatives = self._derivatives
        inner.attach(source)
        inline_calls(source)
        function = main_of(source)
        copy_functions(source, function, module)
        types = list(function_type(function).inputs)
        with context():
            return private_function(
                module.operation,
                name,
                types,
                lambda block: Builder(module, block).inline(function, list(block.arguments)),
            )


def _composites(module: ir.Module) -> list[ir.Operation]:
    return [
        op
        for op in every_operation(module.operation, lambda op: op.name == COMPOSITE)
        if "composite_attributes" in op.attributes
        and _KEY in ir.DictAttr(op.attributes["composite_attributes"])
    ]


def _alone(equation: Any) -> Any:
    """An equation as a closed jaxpr of the variables that it takes."""
    taken = list(dict.fromkeys(v for v in equation.invars if not isinstance(v, jex.Literal)))
    empty = jax.make_jaxpr(lambda: None)().jaxpr
    parts = {"invars": taken, "outvars": list(equation.outvars), "eqns": [equation]}
    jaxpr = empty.replace(**parts, effects=equation.effects)
    return jex.ClosedJaxpr(jaxpr, [])


def _without_dead(closed: Any) -> Any:
    """A closed jaxpr without equations whose results nothing uses: a rule often calls its own function for them."""
    needed = {v for v in closed.jaxpr.outvars if not isinstance(v, jex.Literal)}
    kept = []
    for equation in reversed(closed.jaxpr.eqns):
        if equation.effects or any(v in needed for v in equation.outvars):
            kept.append(equation)
            needed.update(v for v in equation.invars if not isinstance(v, jex.Literal))
    return jex.ClosedJaxpr(closed.jaxpr.replace(eqns=kept[::-1]), closed.consts)


def _name_of(equation: Any) -> str:
    params = equation.params
    called = params.get("call_jaxpr") or params.get("callee") or params.get("jaxprs", (None,))[0]
    info = getattr(getattr(called, "jaxpr", called), "debug_info", None)
    name = getattr(info, "func_name", "") or equation.primitive.name
    return "jax." + "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def _struct_of(aval: Any) -> Any:
    weak: bool = getattr(aval, "weak_type", False)
    return _struct(aval.shape, aval.dtype, weak_type=weak)


_struct: Callable[..., Any] = jax.ShapeDtypeStruct  # jax does not annotate this constructor


def _is_inexact(struct: Any) -> bool:
    return bool(jax.numpy.issubdtype(struct.dtype, jax.numpy.inexact))


def _stopped(_: Any, x: Any) -> list[Any]:
    mark: dict[str, ir.Attribute] = {STOP_GRADIENT: ir.UnitAttr.get()}
    return list(ir.Operation.create("stablehlo.reshape", [x.type], [x], mark).results)


def _composite(*values: Any, jaxpr: Any, name: str, key: int) -> list[Any]:
    def decomposition(*values: Any, **_: int) -> list[Any]:
        return list(jex.jaxpr_as_fun(jaxpr)(*values))

    return list(jax.lax.composite(decomposition, name)(*values, **{_KEY: key}))


_STOP: Any = jex.Primitive("pcp_stop_gradient")  # jax does not annotate its methods
_STOP.def_abstract_eval(lambda aval: aval)
mlir.register_lowering(_STOP, _stopped)

_CUSTOM: Any = jex.Primitive("pcp_custom_derivative")
_CUSTOM.multiple_results = True
_CUSTOM.def_abstract_eval(lambda *_, jaxpr, **__: [v.aval for v in jaxpr.jaxpr.outvars])
mlir.register_lowering(_CUSTOM, mlir.lower_fun(_composite, multiple_results=True))
