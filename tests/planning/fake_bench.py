"""Two families of kernels that do nothing useful, and a Bench that makes up what it measures of them.

One computes `stablehlo.sine`, the other `stablehlo.log_plus_one`. Each kernel emits one operation that betrays it, and the fake
Bench reads times and errors from how often each of them is in a candidate, so that every branch of a search can be forced.
"""

import contextlib
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import pcp
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Family, Kernel, register_kernel
from pcp.kernels.artifact import StableHLO
from pcp.kernels.storage import BF16, BF16_X3, TF32
from pcp.planning import chosen, conditions
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.request import Request
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor, current_builder

PLAIN = "sine"
KERNELS = {"fast": "tanh", "middle": "logistic", "bitwise": "cosine"}
"""What each kernel of the first family emits."""
OTHERS = {"log_plus_one": "exponential_minus_one"}
"""What the second family computes, and what its only kernel emits."""


def add_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the families for one test."""
    family = Family("sine", "sines", lambda op: op.name == "stablehlo.sine")
    monkeypatch.setitem(FAMILIES, "sine", family)
    monkeypatch.setitem(
        FAMILIES, "log1p", Family("log1p", "logarithms", lambda op: op.name == "stablehlo.log_plus_one")
    )
    for name, emitted in KERNELS.items():
        effect = Effect.exact if name == "bitwise" else Effect.lowers_precision
        register_kernel(
            Kernel(f"sine.{name}", "for tests", _everywhere, StableHLO(_emitting(emitted)), effect=effect)
        )
    register_kernel(
        Kernel(
            "log1p.other",
            "for tests",
            _everywhere,
            StableHLO(_emitting("exponential_minus_one")),
            effect=Effect.lowers_precision,
        )
    )


def tried_together(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have kernels of these families tried at all sites at once, each as if it kept fewer bits than the one before it."""
    for name, storage in zip(names, (BF16_X3, TF32, BF16), strict=False):
        kernels = FAMILIES[name.partition(".")[0]].kernels
        kept = replace(kernels[name], storage=storage, together=lambda _: 0)
        monkeypatch.setitem(kernels, name, kept)


def _everywhere(op: ir.Operation) -> bool:  # noqa: ARG001  (what `applies` is given)
    return True


def _emitting(name: str) -> Callable[[ir.Operation], list[Tensor]]:
    function = {
        "tanh": pcp.tanh,
        "logistic": pcp.sigmoid,
        "cosine": pcp.cos,
        "exponential_minus_one": pcp.expm1,
    }[name]

    def build(op: ir.Operation) -> list[Tensor]:
        return [function(Tensor(op.operands[0], current_builder()))]

    return build


def chain(sizes: tuple[int, ...] = (4, 5, 6)) -> Program:
    """A program with two sines of each size, which are different sites of one class."""

    def function(*arrays: Tensor) -> tuple[Tensor, ...]:
        return tuple(pcp.sin(pcp.sin(array) + 1.0) for array in arrays)

    return pcp.trace(function, *(pcp.spec((size, size), "f32") for size in sizes))


@dataclass
class FakeBench:
    """Measures nothing.

    Arguments:
        seconds, errors: of each operation, by name.
        fails: names a failure for a candidate, if it has one.
        before: called before every measurement.
        overhead: seconds that a whole program takes besides.
        noise: of sites alone, by the name of the operation: the seconds of each call.
        elsewhere: of candidates on another backend, by its name: how many times as long they take, and how wrong they are.
        alone: of single operations there, by their names, the same times; others as `elsewhere` says.
        placed: how many times as long a candidate takes of which some operations are placed elsewhere.
        bound: how many times as long one takes that computes once what bound arguments decide.
    """

    seconds: dict[str, float] = field(
        default_factory=lambda: {
            "sine": 1.0,
            "tanh": 0.2,
            "logistic": 0.5,
            "cosine": 0.9,
            "log_plus_one": 1.0,
            "exponential_minus_one": 0.5,
        }
    )
    errors: dict[str, float] = field(
        default_factory=lambda: {
            "sine": 1e-7,
            "tanh": 1e-3,
            "logistic": 1e-5,
            "cosine": 1e-7,
            "log_plus_one": 0.0,
            "exponential_minus_one": 1e-6,
        }
    )
    fails: Callable[[Request], Failure | None] = lambda _: None
    before: Callable[[], object] = lambda: None
    overhead: float = 0.0
    noise: dict[str, list[float]] = field(default_factory=dict)
    elsewhere: dict[str, tuple[float, float]] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    placed: float = 1.0
    bound: float = 1.0
    requests: list[Request] = field(default_factory=list)
    plains: list[Request] = field(default_factory=list)
    """Requests of how wrong the plain program is."""
    begun: list[Request] = field(default_factory=list)
    """What was begun with before it was asked."""

    def begin(self, request: Request) -> None:
        """Keep what will be asked."""
        self.begun.append(request)

    def measure(self, request: Request) -> Measurement:
        """Make up a measurement."""
        if not request.timing_seconds and request.candidate == request.subject:
            self.plains.append(request)
        else:
            self.before()
            self.requests.append(request)
        counts, plain = counted_in(request), counted(request.subject)
        is_whole = sum(plain.values()) > 1
        base = self.overhead if is_whole else 0.0
        error, slower = self._error(counts), 1.0
        if request.elsewhere is not None:
            slower, error = self.elsewhere[request.elsewhere.backend]
            slower = self.alone.get(request.path.partition(" on ")[0], slower)
        if request.placement is not None:
            slower = self.placed
        if request.bound:
            slower *= self.bound / (self.bound if request.subject_bound else 1.0)
        failure = self.fails(request)
        limit = math.inf if not request.tolerance else request.tolerance
        if failure is None and error > limit:
            failure = Failure.inaccurate
        timed = failure is None and request.timing_seconds > 0
        known = failure in (None, Failure.inaccurate) and request.exact is not None
        return Measurement(
            request.subject.digest,
            request.path,
            hardware_of(request.target).digest,
            versions(),
            tuple(slower * each for each in self._times(counts, base)) if timed else (),
            self._times(plain, base) if timed else (),
            error if known else None,
            self._error(plain) if known else None,
            1000 if timed else None,
            failure,
            f"the error of result 0 is {error:.3g}" if failure is Failure.inaccurate else "",
            when=time.time(),
            judgement=Judgement("0") if known else None,
        )

    def _error(self, counts: dict[str, int]) -> float:
        return math.sqrt(sum(count * self.errors[name] ** 2 for name, count in counts.items()))

    def _times(self, counts: dict[str, int], base: float) -> tuple[float, ...]:
        for name, times in self.noise.items():
            if counts[name] == sum(counts.values()) == 1:
                return tuple(times)
        total = base + sum(count * self.seconds[name] for name, count in counts.items()) or 1e-6
        return tuple(total * factor for factor in (1.0, 1.004, 0.997, 1.002, 0.999))

    @property
    def duels(self) -> list[Request]:
        """Of the requests, those for one path against another."""
        return [each for each in self.wholes if each.exact is None and each.tolerance is None]

    @property
    def wholes(self) -> list[Request]:
        """Of the requests, those for whole programs."""
        return [each for each in self.requests if sum(counted(each.subject).values()) > 1]


def kernels(plan: pcp.Plan) -> Counter[str]:
    """How often each kernel is chosen."""
    return Counter(choice.kernel for choice in plan.path.choices.values())


@functools.cache
def counted(program: Program) -> dict[str, int]:
    """How often each of the families' operations is in a program."""
    text = program.text
    names = (PLAIN, *KERNELS.values(), *OTHERS, *OTHERS.values())
    return {name: text.count(f"stablehlo.{name} ") for name in names}


def counted_in(request: Request) -> dict[str, int]:
    """The same of a candidate."""
    assert isinstance(request.candidate, Program)
    return counted(request.candidate)


def use(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    """Let searches measure with it."""

    @contextlib.contextmanager
    def start(*_: object, **__: object) -> Iterator[FakeBench]:
        yield bench

    monkeypatch.setattr(conditions, "Bench", start)
    monkeypatch.setattr("pcp.planning.search.evidence.time.sleep", lambda _: None)
    monkeypatch.setattr(
        chosen, "difference_here", lambda *_: None
    )  # the families' kernels do compute something else
    return bench


def set_strategy(monkeypatch: pytest.MonkeyPatch, **numbers: Any) -> None:
    """Let searches decide by other numbers."""
    monkeypatch.setattr(conditions, "STRATEGY", replace(conditions.STRATEGY, **numbers))
