"""A bench that measures nothing: it makes up times and errors, the same everywhere, and notes what it was asked, in order.

The time of a program is that of its operations, each by its name, what it calls and its size; a kernel alone and a whole with
it agree in that, as far as a `Mood` lets them. Errors are those of the types that it computes in, failures are drawn from what
is asked. Nothing depends on how a program is written, on a clock, or on numbers of a machine.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pcp.backends import Placement
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.planning.instrument import flat
from pcp.planning.judging.tolerance import USUAL_TOLERANCE
from pcp.planning.measuring.bench import PlainProgramFailed
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.rewrite.binding import bind_stage
from tests.replay.clock import CLOCK
from tests.replay.facts import SHORT

CALLS = (1.0, 1.004, 0.997, 1.002, 0.999)
"""What the calls of one measurement take, relative to one another."""
_SECONDS, _SECONDS_OF_A_BYTE = 2e-6, 2e-9
"""Of an operation, besides that of its bytes."""


@dataclass(frozen=True, slots=True)
class Mood:
    """What the made-up machine is like.

    Arguments:
        speed: how many times as long everything takes.
        surprise: by how much the time of a whole differs from what its operations say, at most.
        noise: by how much one measurement differs from the next, at most.
        first: how many times as long the first measurement of a whole takes as those after it.
        failing: the share of candidates that fail.
        failures: how they do.
        broken: operations, or what they call, by whose names a candidate of a whole program fails.
        error: of a candidate in bfloat16; others round as much as float32 does.
        elsewhere: how many times as long a whole takes on another backend.
        alone: the same of single operations there, by name; others as a whole.
        peak: bytes that a measured call takes.
        until: after so many measurements the user presses Ctrl-C.
        plain_fails: after so many the plain program fails to be measured.
    """

    speed: float = 1.0
    surprise: float = 0.0
    noise: float = 0.0
    first: float = 1.0
    failing: float = 0.0
    failures: tuple[Failure, ...] = (Failure.compile_error, Failure.crash, Failure.not_finite)
    broken: tuple[str, ...] = ()
    error: float = 2e-3
    elsewhere: float = 1.5
    alone: tuple[tuple[str, float], ...] = ()
    peak: int = 1000
    until: int = 1 << 30
    plain_fails: int = 1 << 30


@dataclass
class ScriptedBench:
    """It is a context manager, as a `Bench` is."""

    mood: Mood = Mood()
    asked: list[str] = field(default_factory=list)
    _times: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> "ScriptedBench":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing ends."""

    def begin(self, request: Request) -> None:
        """Nothing is done before it is asked."""

    def measure(self, request: Request) -> Measurement:
        """Make up a measurement."""
        assert isinstance(request.candidate, Program)
        # Of what is computed, and not of what it is called: paths and kernels may be named otherwise.
        mood, name = self.mood, f"{request.subject.digest} {request.candidate.digest}"
        if len(self.asked) == mood.until:
            raise KeyboardInterrupt
        if len(self.asked) == mood.plain_fails:
            self.asked.append(f"the plain program fails at {described(request)}")
            raise PlainProgramFailed("made up")
        self.asked.append(described(request))
        self._times[name] += 1
        often = self._times[name]
        plain = mood.speed * seconds(request.subject)
        own = (
            mood.speed
            * seconds(_called(request.candidate, request.bound))
            * _within(mood.noise, f"{name} {often}")
        )
        if request.candidate.digest != request.subject.digest:
            own *= _within(mood.surprise, name)
        if often == 1 and "@" not in request.path:
            own *= mood.first
        if request.elsewhere is not None:
            own = plain * self._elsewhere(request)
        if request.placement is not None:
            own *= 0.9 * _within(0.3, f"{placement_digest(request.placement)} {name}")
        error, failure = self._error(request), self._failure(request, name)
        if failure is None and request.tolerance and error > request.tolerance:
            failure = Failure.inaccurate
        is_timed = failure is None and request.timing_seconds > 0
        is_judged = failure in (None, Failure.inaccurate) and request.exact is not None
        CLOCK.pass_by(
            0.25 + (max(request.timing_seconds, request.calls * (own + plain)) if is_timed else 0.25)
        )
        return Measurement(
            request.subject.digest,
            request.path,
            hardware_of(request.target).digest,
            versions(request.target.backend),
            tuple(own * each for each in CALLS) if is_timed else (),
            tuple(plain * each for each in CALLS) if is_timed else (),
            error if is_judged else None,
            1e-7 if is_judged else None,
            mood.peak if is_timed else None,
            failure,
            "made up" if failure else "",
            when=1e9 + CLOCK.now,
            judgement=Judgement("0") if is_judged else None,
        )

    def _elsewhere(self, request: Request) -> float:
        name = request.path.partition(" on ")[0]
        return dict(self.mood.alone).get(name, self.mood.elsewhere)

    def _error(self, request: Request) -> float:
        narrow = sum(count for (name, _), count in _parts(request.candidate).items() if "bf16" in name)
        own = sum(count for (name, _), count in _parts(request.subject).items() if "bf16" in name)
        return math.hypot(1e-7, self.mood.error * math.sqrt(max(0, narrow - own)))

    def _failure(self, request: Request, name: str) -> Failure | None:
        mood, is_alone = self.mood, "@" in request.path
        calls = {each for each, _ in _parts(request.candidate)} - {
            each for each, _ in _parts(request.subject)
        }
        if not is_alone and any(each in call for call in calls for each in mood.broken):
            return Failure.crash
        if request.candidate.digest == request.subject.digest or drawn(f"fails {name}") >= mood.failing:
            return None
        return mood.failures[int(drawn(f"how {name}") * len(mood.failures))]


def described(request: Request) -> str:
    """A request in one line, for people and for comparing."""
    is_named = "@" in request.path or " " in request.path
    first = f"{request.path if is_named else _digest(request)[:SHORT]} of {request.subject.digest[:SHORT]}"
    return ", ".join([first, *_timing(request), *_judging(request), *_placing(request), *_inputs(request)])


def _digest(request: Request) -> str:
    assert isinstance(request.candidate, Program)
    return request.candidate.digest


def _timing(request: Request) -> Iterator[str]:
    if request.timing_seconds:
        yield f"{request.calls} calls {request.timing_seconds:.4g} s"
    if request.rival is not None:
        yield f"rival {request.rival:.4g}"


def _judging(request: Request) -> Iterator[str]:
    if request.tolerance is not None:
        yield f"within {request.tolerance:.4g}"
    if request.exact is not None:
        yield "judged" if request.judged_at == USUAL_TOLERANCE else f"judged at {request.judged_at}"
    if request.ignored:
        yield f"without {', '.join(map(str, request.ignored))}"
    if request.site is not None:
        yield "verified" if request.worth is None else f"verified {request.worth:.4g}"
    if request.residuals is not None:
        yield f"residuals {request.residuals.digest[:SHORT]}"


def _placing(request: Request) -> Iterator[str]:
    if request.elsewhere is not None:
        yield f"on {request.elsewhere.backend}:{request.elsewhere.device}"
    if request.placement is not None:
        yield f"placed {placement_digest(request.placement)}"
    if request.target.options:
        yield f"options {dict(request.target.options)}"


def _inputs(request: Request) -> Iterator[str]:
    if not isinstance(request.inputs, Recipe):
        yield "the example"
        return
    if request.inputs.sets > 1:
        yield f"{request.inputs.sets} lists"
    if request.inputs.warm_calls:
        yield f"{request.inputs.warm_calls} warm"


def placement_digest(placement: Placement) -> str:
    """What a placement is known by here."""
    return hashlib.sha256(f"{placement.operations} {placement.streamed}".encode()).hexdigest()[:SHORT]


def seconds(program: Program) -> float:
    """Made-up seconds of a program: of each operation some for its bytes, more or less by its name and what it calls."""
    return 1e-7 + sum(
        count * (_SECONDS + size * _SECONDS_OF_A_BYTE) * _cost(name, size)
        for (name, size), count in _parts(program).items()
    )


def _cost(name: str, size: int) -> float:
    """What a byte of an operation takes, beside that of others: less by what is called from outside, and in fewer bits."""
    part = 0.5 if name.startswith("pcp.") or "bf16" in name else 1.0
    return part * (0.2 + 1.6 * drawn(f"{name} {size.bit_length()}"))


def _called(program: Program, bound: tuple[int, ...]) -> Program:
    """What a call of a program computes, some of whose arguments are bound."""
    stage = bind_stage(program, bound) if bound else None
    return program if stage is None else stage.sequence[1].program


_known: dict[str, Counter[tuple[str, int]]] = {}


def _parts(program: Any) -> Counter[tuple[str, int]]:
    """How often each operation is computed, by name and bytes; what is called from outside goes by what it is called."""
    if program.digest not in _known:
        found: Counter[tuple[str, int]] = Counter()
        module = flat(program).module()  # operations do not outlive it
        _count(entry_block(module), found)
        _known[program.digest] = found
    return _known[program.digest]


def _count(block: ir.Block, found: Counter[tuple[str, int]]) -> None:
    for view in block.operations:
        op = view.operation
        name = op.name
        if name == "stablehlo.custom_call":
            name = string_of(op.attributes["call_target_name"]).partition("@")[0]
        types = {spec.dtype for value in (*op.operands, *op.results) if (spec := spec_if_tensor(value.type))}
        narrow = " bf16" if any(str(each) == "bf16" for each in types) else ""
        size = sum(spec.bytes for value in op.results if (spec := spec_if_tensor(value.type)))
        if name not in ("stablehlo.constant", "func.return", "stablehlo.return"):
            found[f"{name}{narrow}", size] += 1
        for region in op.regions:
            for each in region.blocks:
                _count(each, found)


def drawn(text: str) -> float:
    """A number from 0 to 1 that a text stands for."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def _within(share: float, text: str) -> float:
    """A factor that is at most so far from 1."""
    return 1 + share * (2 * drawn(text) - 1)
