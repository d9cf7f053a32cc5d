"""What is asked of a measurement: a program, a candidate that claims to compute the same, and arguments to try both on."""

import hashlib
import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Placement, Target
from pcp.backends.target import Option
from pcp.errors import PCPError
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels import Claims
from pcp.kernels.native.loading import is_from_outside
from pcp.planning.measuring.random_inputs import Recipe

Arrays = Sequence[np.ndarray[Any, Any] | str]
"""Flat arguments, or files that NumPy saved of them."""

CALLS = 7
"""Timed calls of each that are made at least, unless the time is up."""
TIMING_SECONDS = 2.0
"""How long calls are timed; the one that runs when it is over is waited for."""


class NoInputs(PCPError):
    """A request without arguments to try a candidate on."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A candidate from outside: a function of JAX arrays, in the order of the subject's flat arguments.

    Arguments:
        file: of python, which is executed in the child process only.
        function: its name there; it returns one array, or a tuple of them in the order of the subject's results.
        attributes: further arguments, by name.
        wrt: places of arguments whose gradients by JAX are the candidate: they take the cotangent of the one result, too.
    """

    file: str
    function: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    wrt: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", os.path.abspath(self.file))


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A candidate from outside as StableHLO text, which is read in the child process only.

    Arguments:
        wrt: as of `PythonFunction`, by differentiating the program.
    """

    text: str
    wrt: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One measurement to make.

    Arguments:
        subject: the plain program.
        candidate: what claims to compute the same.
        path: what the candidate is called in the database: the digest of a Path; of a region `NAME@VERSION` of its kernel.
        exact: the subject in float64 (`oracle.widened`); without it no error is measured, and `tolerance` is one from the plain
            results.
        inputs: a recipe for arguments, or two or more lists of flat arguments.
        target: what the subject and the candidate are compiled for.
        options: of the compiler for the candidate, as its path says them; None where it has no path, as at a site: then the
            backend is asked what suits it.
        elsewhere: what the candidate is compiled for, where that is something else.
        placement: of operations of the candidate that run elsewhere than the others; None where all run in one place.
        tolerance: the largest error that is worth timing, as `judging.tolerance` defines it; a larger one is a failure.
            0 asks for the bits of the plain path.
        judged_at: the tolerance that decides what is judged on the scale of its group, and whether float32 serves as the
            reference; None judges all on its own and in float64.
        ignored: places of results that are not judged.
        calls: of each program to time, at least.
        timing_seconds: how long calls are timed; 0 times none.
        rival: the time of the best other candidate, relative to the plain program's; infinite where none is known. Timing goes
            on until this one's is known closely, or surely longer than that. None: until one knows which is faster, the
            candidate or the plain program.
        site: what a kernel at a site claims: it is verified there, on several kinds of operands. None verifies nothing.
        worth: a kernel at a site that surely takes more than this many times as long as the plain program is of no use, and not
            verified; `is_verified` says so of its row. None verifies all.
        residuals: what computes the last arguments of the subject from those before; None where all are arguments of their own.
        bound: the flat places of arguments that are bound: what they alone decide is computed once by the candidate, and not in
            every call.
        subject_bound: the same of the subject.
        retyped: by the flat places of state, the element type in which the candidate takes and returns it, where the subject
            does in another.
        sketched: called with the bytes of a `Sketch` of the candidate's results on the first arguments, if they are right; None
            makes none.

    Raises:
        NoInputs: there is nothing to try it on.
    """

    subject: Program
    candidate: Program | PythonFunction | ProgramText
    path: str
    exact: Program | None = None
    inputs: Recipe | Sequence[Arrays] = field(default_factory=Recipe)
    target: Target = field(default_factory=Target.of)
    tolerance: float | None = None
    judged_at: float | None = None
    ignored: tuple[int, ...] = ()
    calls: int = CALLS
    timing_seconds: float = TIMING_SECONDS
    rival: float | None = None
    site: Claims | None = None
    worth: float | None = None
    residuals: Program | None = None
    options: tuple[tuple[str, Option], ...] | None = None
    elsewhere: Target | None = None
    placement: Placement | None = None
    bound: tuple[int, ...] = ()
    subject_bound: tuple[int, ...] = ()
    retyped: Mapping[int, DType] = field(default_factory=dict)
    sketched: Callable[[bytes], object] | None = None

    def target_for(self, candidate: Program) -> Target:
        """What its candidate, or a form of it, is compiled for."""
        place = self.elsewhere or self.target
        return place.suited(candidate) if self.options is None else place.with_options(dict(self.options))

    @property
    def taken(self) -> list[TensorSpec]:
        """What its candidate takes."""
        return _retyped([entry.spec for entry in self.subject.arguments], self.retyped)

    @property
    def returned(self) -> list[TensorSpec]:
        """What its candidate returns."""
        entries = self.subject.arguments
        successors = {entries[place].alias or 0: dtype for place, dtype in self.retyped.items()}
        return _retyped([entry.spec for entry in self.subject.results], successors)

    @property
    def is_moved(self) -> bool:
        """Whether operations of the candidate run elsewhere than the subject's."""
        return self.elsewhere is not None or self.placement is not None

    @property
    def fixed(self) -> frozenset[int]:
        """The arguments that stay the same from one timed call to the next."""
        return frozenset((*self.bound, *self.subject_bound))

    @property
    def is_foreign(self) -> bool:
        """Whether the candidate holds machine code from outside, or python: it runs apart from what judges it."""
        if not isinstance(self.candidate, Program):
            return True
        module = self.candidate.module()  # operations do not outlive it
        calls = list(named_operations(module.operation, "stablehlo.custom_call"))
        is_added = self.site is not None and self.site.is_added
        return any(is_added or is_from_outside(op) for op in calls)

    def __post_init__(self) -> None:
        count = self.inputs.sets if isinstance(self.inputs, Recipe) else len(self.inputs)
        if count < 1:
            raise NoInputs(
                f"{count} lists of arguments were given for {self.path}; give two or more, so that stale results show"
            )


def _retyped(specs: Sequence[TensorSpec], dtypes: Mapping[int, DType]) -> list[TensorSpec]:
    return [TensorSpec(spec.shape, dtypes.get(place, spec.dtype)) for place, spec in enumerate(specs)]


def encoded(request: Request, folder: Path) -> bytes:
    """A request whose arguments are in files, as it travels to another process of this machine; `decoded` reads it.

    Arguments:
        folder: where its programs stay, each once.

    Raises:
        OSError: they cannot be written.
    """
    file = io.BytesIO()
    _Encoder(file, folder, request.sketched).dump(request)
    return file.getvalue()


def decoded(raw: bytes, sketched: Callable[[bytes], object]) -> Request:
    """What `encoded` wrote.

    Arguments:
        sketched: in the place of what a sketch was to be given to there.

    Raises:
        UnknownBackend, UnknownDevice: this process does not see what it names.
    """
    request = _Decoder(io.BytesIO(raw), sketched).load()
    assert isinstance(request, Request)
    return request


_SKETCHED = "sketched"


class _Encoder(pickle.Pickler):
    """Programs go by their files, and a function that is to be called here not at all."""

    def __init__(self, file: io.BytesIO, folder: Path, sketched: object) -> None:
        super().__init__(file)
        self._folder, self._sketched = folder, sketched

    def persistent_id(self, value: Any) -> str | None:
        """See `pickle.Pickler`; None pickles a value as usual."""
        if value is self._sketched and value is not None:
            return _SKETCHED
        if not isinstance(value, Program):
            return None
        path = self._folder / f"{hashlib.sha256(value.bytecode).hexdigest()}.mlirbc"
        if not path.exists():
            path.write_bytes(value.bytecode)
        return str(path)


class _Decoder(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, sketched: object) -> None:
        super().__init__(file)
        self._sketched = sketched

    def persistent_load(self, name: str) -> Any:
        """See `pickle.Unpickler`."""
        return self._sketched if name == _SKETCHED else Program(Path(name).read_bytes())
