"""Plan: a Program with the way it is run, compiled for a device and ready to be called."""

import functools
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pcp.backends import Executable, Target
from pcp.backends.base import CompileOptions
from pcp.backends.host_memory import give_back_freed_memory
from pcp.backends.regions import RegionsExecutable, compiled_in_places
from pcp.ir import Program
from pcp.ir.expecting import expect_program
from pcp.ir.operations import Operation, operations_of
from pcp.planning import capacity
from pcp.planning.added import register_added
from pcp.planning.arguments import ordered
from pcp.planning.binding import bound_count, bound_lines, narrowable
from pcp.planning.by_size import Buckets, by_size
from pcp.planning.capacity import check_capacity, human, lower_bound
from pcp.planning.chosen import searched
from pcp.planning.compiled import Compiled
from pcp.planning.conditions import BUDGET, Conditions, Database, Place, evidence_of, places_of
from pcp.planning.diagnostics.nan_finder import checked_run
from pcp.planning.diagnostics.operation_times import OperationProfile, profile_operations
from pcp.planning.diagnostics.taps import Show, TappedExecutable, with_taps
from pcp.planning.fitting import Fit, fitted, fitted_unasked
from pcp.planning.judging.plan_errors import errors_on
from pcp.planning.judging.tolerance import ResultError
from pcp.planning.libraries import have_libraries
from pcp.planning.measuring.hardware import made_with
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.pages import plan_fragment
from pcp.planning.paths.kinds.stored import narrowed_by
from pcp.planning.paths.path import Path
from pcp.planning.pinned import PlanConflict as PlanConflict
from pcp.planning.pinned import check_pinned, target_of
from pcp.planning.placing.layouts_in_turn import laid
from pcp.planning.placing.over_devices import Devices, described_layout, over_devices
from pcp.planning.report import as_json, described, listed_entries
from pcp.planning.search.evidence import Progress
from pcp.planning.search.found import Found
from pcp.planning.search.loop import answered
from pcp.planning.taking import of_whatever_has_a_program
from pcp.tensor import is_tracing
from pcp.tracing import call


class Plan(Compiled):
    """A Program compiled for a device. Make one with `pcp.plan`.

    Arguments:
        program: what it computes.
        target: what it is compiled for.
        executable: the compiled form.
        path: how it is run; None is the plain path.
        found: what the search for the path came to, if there was one.
        tolerance: that was asked for.
        fit: what the path gives up to take no more memory than was asked for; None if nothing was asked.
        axes: along which each argument is cut over several devices.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        executable: Executable,
        *,
        path: Path | None = None,
        found: Found | None = None,
        tolerance: float | None = None,
        fit: Fit | None = None,
        axes: Sequence[int | None] = (),
    ) -> None:
        super().__init__(program, target, executable, () if path is None else narrowed_by(path.moves), axes)
        self._path = path
        self._found = found
        self.tolerance = tolerance
        self.fit = fit

    @functools.cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation that is run in order, with the user's line that it comes from."""
        return operations_of(self.lowered)

    @functools.cached_property
    def lowered(self) -> Program:
        """The program as it is run: with the kernels of its path in place."""
        return self.path.applied(self.program)

    @functools.cached_property
    def path(self) -> Path:
        """How it is run: save it, and give it to `pcp.plan` to have the same results again, bit for bit."""
        path = self._path or Path.plain(self.program, dict(self.target.options), self.target.backend)
        return path.made_on(*made_with(self.target, path.placement))

    @property
    def error(self) -> float | None:
        """The largest error of its results against float64 when the path was measured; None if no tolerance was asked for."""
        return None if self.measurement is None else self.measurement.error

    @property
    def plain_error(self) -> float | None:
        """The same of the plain path."""
        return None if self.measurement is None else self.measurement.plain_error

    @property
    def measurement(self) -> Measurement | None:
        """What was measured of the path when a tolerance was asked for, in turn with the plain one."""
        return None if self._found is None else self._found.measurement

    @property
    def site_measurements(self) -> tuple[Measurement, ...]:
        """What is known here of the kernels at its sites, when a tolerance was asked for: one row each."""
        classes = [] if self._found is None else self._found.classes
        return tuple(row for tuned in classes for row in tuned.rows.values())

    def errors(self, *arguments: Any) -> list[ResultError]:
        """The error of every result on these arguments, against float64, and the plain path's; state is not consumed.

        It compiles the program twice more, once in float64.

        Raises:
            TreeMismatch, ArgumentMismatch, OutOfMemory: as `run`.
        """
        return errors_on(self, arguments, self.tolerance)

    def to_json(self) -> dict[str, Any]:
        """What `print` says of its path, as values of JSON."""
        facts = as_json(self.path, self._found, self.tolerance)
        fit = None if self.fit is None else self.fit.to_json()
        place = {"device": self.target.places, "backend": self.backend.name}
        return {"program": self.program.digest, **place, "fit": fit} | facts

    def run(self, *arguments: Any, check: bool = False, **named: Any) -> Any:
        """The results for arguments nested as the traced function's.

        Arguments:
            arguments: leaves are NumPy arrays, which are copied to the device, or buffers of the backend, which
                are `jax.Array`s for XLA. Those of role `state` are donated: their memory becomes the result's,
                and they cannot be used again.
            named: arguments after these, by their names.
            check: whether every result is read and looked at for NaN and infinities; then copies of state are
                donated. It is for debugging: slow, and with memory for that copy.

        Returns:
            buffers of the backend on the device (`jax.Array`s for XLA), nested as what the function returned.

        Raises:
            NaNFound: `check` is given and a result is not finite; the message names the operation it came from.
            TreeMismatch: an argument is nested otherwise.
            ArgumentMismatch: their number, a name, a shape or an element type differs.
            DonatedArray: an array was donated to an earlier call.
            DonatedTwice: an array is given twice, and one of the two is donated.
            OutOfMemory: the device has too little memory left.
        """
        arguments = self._ordered(arguments, named)
        if check:
            return checked_run(self, self.lowered, arguments)
        return self.call(*arguments)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results: as `run` does outside of any trace; inside a traced function the plan's program is composed in.

        Raises:
            TreeMismatch, ArgumentMismatch, DonatedArray: outside, as `run`.
            TreeMismatch, ShapeMismatch, DTypeMismatch: inside, as `pcp.call`.
        """
        arguments = self._ordered(arguments, named)
        if is_tracing():
            return call(self.program, *self.bound, *arguments)
        return self.run(*arguments)

    def _ordered(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call, those that are given by their names in their places."""
        return ordered(self.program, self._bound_count, arguments, named) if named else arguments

    def profile(
        self, *arguments: Any, path: str | os.PathLike[str] | None = None, repeats: int = 5
    ) -> OperationProfile:
        """How long every operation takes alone, which is not what it takes in the plan: fusion is not represented.

        Arguments:
            arguments: as for `run`; state is not consumed.
            path: where a trace for Perfetto is written, if anywhere.
            repeats: how often each operation is run; the least time counts.

        Raises:
            TreeMismatch, ArgumentMismatch, OutOfMemory: as `run`.
            OSError: the trace cannot be written.
        """
        profile = profile_operations(self, self.lowered, arguments, repeats)
        if path is not None:
            profile.save(path)
        return profile

    def _repr_html_(self) -> str:
        use = self._executable.memory
        return plan_fragment(self.lowered, self.to_json(), str(self), str(self.target), use, self.inputs)

    def __str__(self) -> str:
        use = self._executable.memory
        regions = self._executable.described() if isinstance(self._executable, RegionsExecutable) else ""
        counts = Counter(op.name for op in self.operations if not op.depth)
        shown = ", ".join(f"{count} {name}" for name, count in counts.most_common(8))
        more = f", {len(counts) - 8} kinds more" if len(counts) > 8 else ""
        bound = f" (the first {self._bound_count} arguments are bound)" if self._bound_count else ""
        return "\n".join(
            [
                f"Plan of program {self.program.digest[:12]} on {self.target}{bound}",
                f"  takes       {listed_entries(self.inputs)}",
                f"  returns     {listed_entries(self.outputs)}",
                f"  memory      {human(use.peak)} of {human(self.target.capacity)}: "
                f"arguments {human(use.arguments)}, results {human(use.results)} "
                f"of which {human(use.aliased)} in donated arguments, temporaries {human(use.temporaries)}",
                *([] if self.fit is None else [f"              {self.fit}"]),
                f"  operations  {counts.total()}: {shown}{more}",
                *([f"  regions     {regions}"] if regions else []),
                *described_layout(self.program, self.path, self.lowered, self._executable),
                *bound_lines(self._executable),
                *described(self.path, self._found, self.tolerance),
            ]
        )


@of_whatever_has_a_program
@by_size
def plan(
    program: Program,
    device: Place | Sequence[Place] | None = None,
    tolerance: float | None = None,
    *,
    memory: int | str | None = None,
    mapped: Collection[str] = (),
    binds: Collection[str] = (),
    narrows: Collection[str] = (),
    cache: bool = True,
    taps: Show | None = None,
    options: CompileOptions = MappingProxyType({}),
    path: Path | None = None,
    database: Database = None,
    budget: float = BUDGET,
    example: Sequence[Any] | None = None,
    progress: Callable[[Progress], object] | None = None,
    judge: Mapping[str, str] = MappingProxyType({}),
    buckets: Buckets | None = None,
    devices: Devices | None = None,
    layout: str | None = None,
) -> Plan:
    """Compile a Program for a device, by the fastest path that is known or found within a tolerance.

    Arguments:
        program: from `pcp.trace`, `pcp.load` or a transformation of one; or what `pcp.from_torch` makes, whose weights are
            bound; or a function, which is traced with `example`. Of a symbolic program the result is a `SymbolicPlan`, whose
            `run` takes arguments of all sizes.
        device: `cpu:0`, `cuda:1`, `arena:cpu`; if None, what the environment variable PCP_DEVICE says, or `cpu:0`;
            or a `Target`, which names a backend, a device and options. Of a list the whole program is measured on every place,
            too, and the fastest is taken; "any" stands for what all backends that are installed have.
        tolerance: how wrong every result may be: ||y - y64|| / ||y64||, and ten times that for every slice; see
            `pcp.planning.judging.tolerance`. 0 asks for the bits of the plain path. None changes no numerics: nothing is
            searched, and the program runs as it is written. Where egglog is installed, programs that are equal by algebra are
            searched, too.
        memory: bytes that a call may take, as `40 * 2**30` or `"40GiB"`; None for what the device has, or PCP_MEMORY_LIMIT
            says. Where it takes more, values are computed again, and the batch is computed in parts, as little as was found to
            fit; `Plan.fit` says what was given up.
        mapped: names of arguments, like `("params",)`, that will be given as read-only `numpy.memmap`s: a processor reads them
            where they lie, so they may be larger than its memory, and do not count in what has to fit.
        binds: names of the first arguments, like `("weights",)`, that the caller will give to `Plan.bind`. With a tolerance,
            paths are measured that compute once, when these are bound, what they alone decide, and such a path is taken where
            it is faster; without one, nothing is searched.
        narrows: names of state that an optimizer keeps, like `("state.optimizer",)`, which paths may take and return in
            bfloat16, where that is faster within the tolerance or memory is short. `run` takes the state that it returned, and
            float32, which is rounded. `Plan.inputs` says what is kept so.
        cache: whether the compiled form is kept on disk, and taken from there.
        taps: called after every call with the label and the value of each `pcp.tap` in the program; `print` shows them.
        options: settings of the compiler by their own names.
        path: to follow exactly, from `Plan.path`; then nothing is searched. On the hardware and by the versions that it was
            made with, results are the same, bit for bit.
        database: of measurements (`ProfileDatabase`), or its file; None takes the user's.
        budget: seconds in which measurements may begin; 0 takes what is known, or predicted surely. What was found before they
            were over is taken at once by the same request; a larger budget goes on. Ctrl-C ends them too: what was measured
            is kept, and the best that is known is taken; if no path was measured, planning ends.
        example: one call's arguments, to measure on, or, of a function, specs of such; None makes random ones, but for what
            `Program.begins` knows.
        progress: told before every measurement.
        judge: `{"name": "ignore"}` leaves a result, or all that are nested in it, out of what is judged; the plan says so.
        buckets: of a symbolic program, for a symbol the largest sizes of its buckets, as `{"length": [128, 512]}`; a path is
            searched for once in each. Without, they end at powers of two.
        devices: several of one kind, in the place of `device`, that compute the program together: `"cuda:0-3"`, or a list.
        layout: how the program lies over them: `dp` cuts the batch, `zero1` an optimizer's state, too, `fsdp` all state. None
            takes the first of these that fits in memory, `fastest` measures them.

    Raises:
        ToleranceUnreachable, ReferenceNotFinite: no path is within it, as the plain one misses it, or no number can be judged.
        UnknownResult, InvalidJudge: `judge` names no result, or says something else of it.
        InvalidTolerance, InvalidBudget: a number that is none.
        ProgramExpected: something else than a Program is given.
        NotAPath: something else than a Path is given.
        PathMismatch: the path belongs to another program, other hardware, or other versions, or a kernel does not fit.
        UnknownOperation, NotDivisible: the path has an operation run elsewhere that the program lacks, or that runs as a whole.
        KernelNotAdded: the path names a kernel from outside that was not added here.
        InvalidLayout, UnevenBatch: `devices` cannot share the program so; the message names the argument and its size.
        PlanConflict: both a path and a tolerance are given, or a path and other options, or several devices and no tolerance,
            or `devices` beside `device` or a tolerance, or a layout without `devices`, or buckets for a program without
            symbols, or `binds` beside memory.
        InvalidBuckets, PathOfOneSize: buckets that are none, or a path, for a symbolic program.
        NoPlaces: the list of devices is empty.
        InvalidMemoryLimit: `memory` is no number of bytes.
        InvalidNarrows: `narrows` names no moments of an optimizer in float32.
        InvalidBinds: `binds` names no argument, or state, or leaves out one before another.
        InvalidMapped: `mapped` names no argument, or state, or the device has a memory of its own.
        MemoryUnreachable: nothing that was tried fits in `memory`; an OutOfMemory.
        OutOfMemory: it does not fit in the device's memory, which is known before anything runs.
        UnknownDevice, UnknownBackend: there is no such device, or no such backend.
        InvalidTarget: the target has more devices than its backend uses, or other options than those given beside it.
        TooFewDevices: collectives of the program need more devices than the target has; a CompilationFailed.
        CompilationFailed: the compiler refuses the program.
    """
    expect_program(program, "pcp.plan")
    several = over_devices(device, devices, options, path, layout, (tolerance, binds, mapped, taps, narrows))
    if several is not None and several.replicates:
        made = laid(program, several, path, layout, capacity.memory_limit(several, memory), cache=cache)
        return Plan(program, made.target, made.executable, path=made.path, axes=made.axes)
    if buckets is not None:
        raise PlanConflict(
            "buckets of sizes were given for a program without symbols; expected a symbolic program: leave them out"
        )
    first, others = places_of(several or device)
    if others and tolerance is None:
        raise PlanConflict(
            f"several devices were given ({device}) and no tolerance; which is the fastest is measured within one: give a "
            "tolerance, or one device"
        )
    target = target_of(first, options, path)
    for each in (target, *others):
        each.expect(program)
    limit = capacity.memory_limit(target, memory)
    outside = capacity.mapped_bytes(program, target, mapped)
    check_capacity(program, lower_bound(program).without(outside), target, limit)
    if mapped and (tolerance is not None or memory is not None):
        raise PlanConflict(
            "mapped was given beside a tolerance or memory; both measure on arrays that lie in memory: leave them out"
        )
    bound = bound_count(program, binds)
    if bound and memory is not None:
        raise PlanConflict(
            "binds was given beside memory; what is computed once is kept, which takes memory: leave one of them out"
        )
    narrow = narrowable(program, narrows)
    found, fit = None, None
    if path is not None or tolerance is not None:
        register_added()
    if path is not None:
        check_pinned(path, program, target, tolerance, options)
        place = target if path.placement is None else path.placement.main(target)
        path = path.suited(program, place)
        target = path.home(target)
    elif tolerance is not None:
        most, asked = capacity.memory_limit(target), None if memory is None else limit
        conditions = Conditions(
            target,
            most,
            database,
            budget,
            example,
            progress,
            judge,
            memory=asked,
            bound=bound,
            narrows=narrow,
        )
        have_libraries(program, target, tolerance, budget)
        search = functools.partial(searched, program, tolerance, conditions, others)
        with evidence_of(conditions) as evidence:
            found, target = answered(search, evidence)
        give_back_freed_memory()  # two programs were run beside each other; calls of the plan run one
        path, fit, target = found.path, found.fit, found.path.home(target)
        limit = capacity.memory_limit(target, memory)
    elif memory is not None:
        fit = fitted(program, Path.plain(program, dict(target.options), target.backend), target, limit, cache)
        path, target = None if fit.path.is_plain else fit.path, target.with_options(dict(fit.path.options))
    else:
        target = target.suited(program)
    lowered = program if path is None else path.applied(program)
    tapped, labels = (lowered, []) if taps is None else with_taps(lowered)
    placement, once = (None, ()) if path is None else (path.placement, path.bound)
    executable = compiled_in_places(tapped, target, placement, once if taps is None else (), cache=cache)
    executable = executable if taps is None else TappedExecutable(executable, labels, taps)
    if path is None and taps is None and not mapped and executable.memory.peak > limit:
        fit = fitted_unasked(program, executable.memory, target, limit, cache)
        path, target = fit.path, fit.path.target(target.devices)
        executable = target.compile(path.applied(program), cache=cache)
    check_capacity(program, executable.memory.without(outside), target, limit)
    return Plan(program, target, executable, path=path, found=found, tolerance=tolerance, fit=fit)
