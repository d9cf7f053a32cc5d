"""`pcp.jit`: a function of Tensors that is called with arrays. It is traced and planned for their shapes and element types."""

import difflib
import functools
import inspect
import logging
import threading
import types
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, overload

from pcp.calling.kept import KEPT, STORE
from pcp.calling.programs import Planned, donating, plan_of
from pcp.calling.signature import Call, Names, Signature, StaticArgument, as_names
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.expecting import expect_function
from pcp.ir.program import Runs
from pcp.planning import Plan, plan
from pcp.planning.conditions import Place
from pcp.tensor import is_tracing
from pcp.tracing import trace_closure

log = logging.getLogger("pcp.calling")


class UnknownSetting(PCPError):
    """A setting of `pcp.jit` that neither it nor `pcp.plan` takes."""


_SAID = 100
"""Reasons that are remembered: the last ones."""


class Jitted:
    """A function that runs by plans; `pcp.jit` makes one.

    Arguments:
        function: of Tensors.
        static: places and names of arguments that are no arrays.
        donated: places and names of arguments whose memory becomes that of results.
        settings: arguments of `pcp.plan`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static: Sequence[int | str],
        donated: Sequence[int | str],
        settings: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = Signature(function, static)
        self._donated = frozenset(self._signature.name_of(entry, "donate_argnums") for entry in donated)
        self._settings = settings
        self._key = object()
        self._said: deque[str] = deque(maxlen=_SAID)
        self._last: dict[str, str] | None = None
        self._recent: Plan | None = None
        self._lock = threading.RLock()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results for arrays, numbers and containers of such; inside a trace, those of the function itself.

        Returns:
            Buffers of the backend (`jax.Array`s for XLA), nested as the function returns them.

        Raises:
            NoArrayGiven, StaticArgument: an argument is none of these.
            TracingError: the function is refused where it is traced.
            PCPError: what `pcp.plan` and `Plan.run` raise.
        """
        if is_tracing():
            return self._function(*arguments, **named)
        recent = self._recent
        if recent is not None and not named and recent.knows(arguments):
            return recent.call(*arguments)
        call = self._signature.call(arguments, named)
        planned = self._planned(call)
        self._recent = None if named or call.statics or any(call.weak) else planned
        return planned.call(*call.given())

    def plan(self, *arguments: Any, **named: Any) -> Plan:
        """The Plan that a call with these arguments runs."""
        return self._planned(self._signature.call(arguments, named))

    def program(self, *arguments: Any, **named: Any) -> Program:
        """The Program that a call with these arguments runs."""
        return self.plan(*arguments, **named).program

    def explain(self) -> str:
        """Why the function was traced and planned, once for each time."""
        return "\n".join(self._said) or f"{self._name} was not called yet"

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def _planned(self, call: Call) -> Plan:
        key = (self._key, call.key)
        plan: Plan | None = STORE.get(key)
        if plan is None:
            with self._lock:
                plan = STORE.get(key)
                if plan is None:
                    plan = self._made(call)
                    STORE.put(key, plan)
        return plan

    def _made(self, call: Call) -> Plan:
        self._say(call)
        program, _ = trace_closure(self._signature.form(call), *call.takers())
        program = donating(program, [place for place, name in enumerate(call.names) if name in self._donated])
        example = {"example": call.given()} if self._settings.get("tolerance") is not None else {}
        plan: Plan = plan_of(program, self._settings, **example)
        return plan

    def _say(self, call: Call) -> None:
        now = call.described()
        said = f"{self._name} is traced and planned for {_listed(now)}"
        if self._last is not None:
            said = f"{self._name} is traced and planned again: {_changed(self._last, now)}"
        self._said.append(said)
        self._last = now
        log.info("%s", said)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"pcp.jit({self._name})"


def _of_program(
    program: Runs, static: Sequence[int | str], donated: Sequence[int | str], settings: dict[str, Any]
) -> Planned:
    """A program, which needs no tracing."""
    places = [place for place in donated if isinstance(place, int)]
    if static or len(places) < len(donated) or (places and not isinstance(program, Program)):
        raise StaticArgument(
            f"pcp.jit was given a {type(program).__name__}, static arguments {static} and donated ones {donated}; a program "
            "has no static arguments, and donates by numbers of arguments: give the function, or leave these out"
        )
    return Planned(donating(program, places) if isinstance(program, Program) else program, settings)


def _listed(described: dict[str, str]) -> str:
    entries = [f"{name}: {what}" for name, what in described.items()]
    return ", ".join(entries[:6] + [f"{len(entries) - 6} more"] * (len(entries) > 6)) or "no arguments"


def _changed(before: dict[str, str], now: dict[str, str]) -> str:
    changes = [
        f"{name} is {now[name]} and was {before[name]}"
        if name in before and name in now
        else f"{name} was given, as {now[name]}"
        if name in now
        else f"{name} was left out"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]
    shown = changes[:3] + [f"{len(changes) - 3} changes more"] * (len(changes) > 3)
    return "; ".join(shown) or f"containers are of other types, or the plan was given up for {KEPT} others"


@overload
def jit(
    function: Callable[..., Any],
    *,
    device: Place | Sequence[Place] | None = None,
    tolerance: float | None = None,
    static_argnums: Names = None,
    static_argnames: Names = None,
    donate_argnums: Names = None,
    **settings: Any,
) -> Jitted: ...
@overload
def jit(
    function: None = None,
    *,
    device: Place | Sequence[Place] | None = None,
    tolerance: float | None = None,
    static_argnums: Names = None,
    static_argnames: Names = None,
    donate_argnums: Names = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    device: Place | Sequence[Place] | None = None,
    tolerance: float | None = None,
    static_argnums: Names = None,
    static_argnames: Names = None,
    donate_argnums: Names = None,
    **settings: Any,
) -> Any:
    """A function that is traced and planned when it is called, once for all arguments of equal shapes and element types.

    Also a decorator, with and without settings: `@pcp.jit`, `@pcp.jit(tolerance=1e-3)`.

    Arguments:
        function: of Tensors; or a Program, a symbolic one, or what `pcp.from_torch` makes, whose weights are bound.
        device, tolerance: as of `pcp.plan`. With a tolerance, the first call of each shape searches, on its own arguments.
        static_argnums, static_argnames: arguments, by place or name, that are no arrays and decide what is computed: each value
            has a program of its own. They must be hashable.
        donate_argnums: arguments, by place or name, whose memory becomes that of results of equal shape and element type; they
            cannot be used again.
        settings: further arguments of `pcp.plan`, as `memory="8GiB"` or `budget=30`.

    Returns:
        A function that takes arrays of NumPy, JAX and PyTorch, `pcp.Array`s, numbers, and containers of such, and returns
        `jax.Array`s, nested as `function` returns its results. Its `explain()` says why it was planned, `plan(...)` returns the
        Plan for arguments. Inside a trace it is `function` itself.

    Raises:
        ProgramExpected: `function` is no function of Tensors.
        UnknownSetting: a setting is none of `pcp.plan`.
        StaticArgument: the function has no argument of a name or place.
    """
    if function is None:
        return functools.partial(
            jit,
            device=device,
            tolerance=tolerance,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            **settings,
        )
    chosen = {"device": device, "tolerance": tolerance, **settings}
    known = inspect.signature(plan).parameters
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(
                name, [*known, "static_argnums", "static_argnames", "donate_argnums"], 1
            )
            raise UnknownSetting(
                f"pcp.jit was given {name}={settings[name]!r:.60}, which neither it nor pcp.plan takes; "
                + (f"write {near[0]}" if near else f"expected one of {', '.join([*known][1:])}")
            )
    static = (*as_names(static_argnums), *as_names(static_argnames))
    if isinstance(function, Runs):
        return _of_program(function, static, as_names(donate_argnums), chosen)
    expect_function(function, "pcp.jit")
    return Jitted(function, static, as_names(donate_argnums), chosen)
