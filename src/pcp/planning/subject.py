"""What candidates are compared with: the plain program, its arguments, its results and those in float64.

This runs in the child.
"""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Backend, Device, Executable
from pcp.backends.base import Buffer, CompileOptions, OutOfMemory
from pcp.ir import Program, Role
from pcp.ops.elementwise import convert
from pcp.planning.comparison import Comparison
from pcp.planning.kept_results import Results, kept_results, loaded
from pcp.planning.random_inputs import Recipe, random_arguments
from pcp.planning.timing import Runnable, awaited, timed
from pcp.planning.tolerance import FLOAT32_FAILS, ResultError
from pcp.tensor import Tensor
from pcp.tracing import call, spec, trace

log = logging.getLogger("pcp.planning.subject")

_QUICKLY: dict[str, CompileOptions] = {
    "cpu": {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
    "cuda": {"xla_gpu_autotune_level": 0},
}
"""Float64 results are computed once, and products are not what these options slow down: compiling takes a third."""


class Subject:
    """A plain program on some lists of arguments, ready to be compared with candidates.

    Arguments:
        program: the plain program.
        exact: the same in float64, if errors are wanted.
        inputs: a recipe, or files of arrays, one list for each call.
        exact_inputs: how many of the lists are judged by `exact`.
        options: of the compiler.
        folder: for results.
        stage: told what is going on.
    """

    def __init__(
        self,
        program: Program,
        exact: Program | None,
        inputs: Recipe | Sequence[Sequence[str]],
        exact_inputs: int | None,
        options: CompileOptions,
        folder: Path,
        backend: Backend,
        device: Device,
        stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        stage("compiling the plain program")
        self.program = program
        self.backend, self.device = backend, device
        self.comparison = Comparison(backend, device)
        self.plain = Runnable(backend.compile(program, device, options, cache=True), program.arguments)
        self.plain_seconds: list[float] = []
        """Of calls of the plain program as they happened."""
        self._recipe = inputs
        sets = inputs.sets if isinstance(inputs, Recipe) else len(inputs)
        self.inputs: list[list[Buffer]] = []
        self._exact: list[Results] = []
        self._plain: list[Results] = []
        self._deterministic: bool | None = None
        judged_exactly = 0 if exact is None else sets if exact_inputs is None else min(exact_inputs, sets)
        oracle = None if exact is None else Oracle(exact, program, backend, device)
        for index in range(sets):
            stage("inputs")
            placed = self._placed(index)
            if oracle is not None and index < judged_exactly:
                stage("float64")
                name = f"exact-{_key(program, oracle.exact, inputs, index)}"
                self._exact.append(
                    kept_results(
                        folder / name, program.results, device, functools.partial(oracle.run, placed)
                    )
                )
            stage("plain")
            name = f"plain-{os.getpid()}-{_key(program, program, inputs, index)}"
            run = functools.partial(self._timed_plain, placed)
            self._plain.append(kept_results(folder / name, program.results, device, run))
            self.inputs.append(placed)
        self._unsure = self._uncomputable() if judged_exactly < sets else set()

    @property
    def bytes(self) -> int:
        """Memory that it takes."""
        arguments = len(self.inputs) * sum(entry.spec.bytes for entry in self.program.arguments)
        return arguments + sum(kept.bytes for kept in (*self._exact, *self._plain))

    @property
    def is_deterministic(self) -> bool:
        """Whether the plain program has the same results twice; tried when that is asked for."""
        if self._deterministic is None:
            self.is_repeated(self._timed_plain(self.inputs[0]))
        return bool(self._deterministic)

    def is_repeated(self, results: Sequence[Any]) -> bool:
        """Whether results of the plain program on the first list of arguments are those it had before, bit for bit."""
        pairs = zip(self._plain[0], results, strict=True)
        self._deterministic = all(self.comparison.same_bits(a, b) for a, b in pairs)
        return self._deterministic

    def close(self) -> None:
        """Remove its files, but for the float64 results."""
        for kept in self._plain:
            kept.close()

    def plain_results(self, index: int) -> Iterator[Any]:
        """The results of the plain program on one list of arguments."""
        return iter(self._plain[index])

    def errors(self, index: int, found: Sequence[Any]) -> tuple[list[ResultError], bool]:
        """The errors of results on one list of arguments, and whether they are those against float64.

        Where no float64 results are asked for, plain ones take their place, but for what float32 cannot compute.
        """
        is_exact = index < len(self._exact)
        rights = self._exact[index] if is_exact else self._plain[index]
        errors = []
        for place, (right, plain, y) in enumerate(zip(rights, self._plain[index], found, strict=True)):
            if place in self._unsure and not is_exact:
                errors.append(self._only_finite(place, plain, y))
            else:
                errors.append(self._error(index, place, right, plain if is_exact else None, y))
        return errors, is_exact

    def _error(self, index: int, place: int, right: Any, plain: Any, y: Any) -> ResultError:
        entry = self.program.results[place]
        named = replace(entry, name=entry.name or str(place))
        before, kept = None, 0.0
        for argument, buffer in zip(self.program.arguments, self.inputs[index], strict=True):
            if argument.alias == place and argument.spec.dtype.is_differentiable:
                before, kept = buffer, argument.kept
        return self.comparison.error(named, right, plain, y, before, kept)

    def _only_finite(self, place: int, plain: Any, y: Any) -> ResultError:
        finite = np.isfinite(np.asarray(y)) | ~np.isfinite(np.asarray(plain))
        name = self.program.results[place].name or str(place)
        return ResultError(name, 0.0 if finite.all() else float("inf"), 0.0)

    def _uncomputable(self) -> set[int]:
        """The results of which float32 computes less than four digits, by the first list of arguments."""
        if not self._exact:
            return set()
        pairs = enumerate(zip(self._exact[0], self._plain[0], strict=True))
        return {
            place
            for place, (right, plain) in pairs
            if self.program.results[place].spec.dtype.is_differentiable
            and self._error(0, place, right, None, plain).error > FLOAT32_FAILS
        }

    def _timed_plain(self, placed: Sequence[Buffer]) -> list[Buffer]:
        results, seconds = timed(self.plain, placed, self.backend, self.device)
        self.plain_seconds.append(seconds)
        return results

    def _placed(self, index: int) -> list[Buffer]:
        if not isinstance(self._recipe, Recipe):
            arrays = [
                loaded(path, entry.spec.dtype.numpy)
                for path, entry in zip(self._recipe[index], self.program.arguments, strict=True)
            ]
            return place(self.program, arrays, self.backend, self.device)
        entries = self.program.arguments
        placed = place(
            self.program, random_arguments(entries, self._recipe, index), self.backend, self.device
        )
        for count in range(self._recipe.warm_calls):
            results = self._timed_plain(placed)
            fresh = [
                i for i, entry in enumerate(entries) if entry.alias is None and entry.role is not Role.weight
            ]
            arrays = random_arguments(entries, self._recipe, index + (count + 1) * 1000, only=fresh)
            for i, entry in enumerate(entries):
                if i in fresh:
                    placed[i] = self.backend.place(
                        arrays[fresh.index(i)], entry.spec, self.device, alias=False
                    )
                elif entry.alias is not None:
                    placed[i] = results[entry.alias]
        return placed


class Oracle:
    """A program in float64, run where it fits.

    Arguments:
        program: in float64.
        narrow: the same as it was, whose arguments it takes.
        device: where the others run; what does not fit there runs on the processor.
    """

    def __init__(self, program: Program, narrow: Program, backend: Backend, device: Device) -> None:
        self.exact, self._narrow = program, narrow
        self._backend, self._device = backend, device
        self._executable: Executable | None = None

    def run(self, arguments: Sequence[Any]) -> list[Buffer]:
        """The results in float64 for arguments of the program as it was, which stay as they are."""
        try:
            return self._run(arguments)
        except OutOfMemory as error:
            host = next((each for each in self._backend.devices() if each.kind == "cpu"), self._device)
            if host == self._device:
                raise
            log.info(
                "float64 results come from the processor, since %s has too little memory: %s",
                self._device,
                error,
            )
            self._device, self._executable = host, None
            return self._run(arguments)

    def _run(self, arguments: Sequence[Any]) -> list[Buffer]:
        if self._executable is None:
            options = _QUICKLY.get(self._device.kind, {})
            self._executable = self._backend.compile(self._program, self._device, options, cache=True)
        is_here = [self._backend.is_buffer(a) and self._backend.is_on(a, self._device) for a in arguments]
        given = [
            each if here else self._backend.place(np.asarray(each), entry.spec, self._device, alias=False)
            for each, here, entry in zip(arguments, is_here, self._narrow.arguments, strict=True)
        ]
        return awaited(self._executable.run(given))

    @functools.cached_property
    def _program(self) -> Program:
        """The program in float64 with arguments as they were, so that they need not be there twice."""
        wide = [entry.spec.dtype for entry in self.exact.arguments]

        def run(*arguments: Tensor) -> Any:
            given = [convert(argument, dtype) for argument, dtype in zip(arguments, wide, strict=True)]
            return call(self.exact, *self.exact.argument_tree.unflatten(given))

        return trace(run, *(spec(entry.spec.shape, entry.spec.dtype) for entry in self._narrow.arguments))


def place(program: Program, arrays: Iterable[Any], backend: Backend, device: Device) -> list[Buffer]:
    """The arguments of a program on a device."""
    return [
        backend.place(array, entry.spec, device, alias=False)
        for array, entry in zip(arrays, program.arguments, strict=True)
    ]


def _key(program: Program, exact: Program, inputs: Recipe | Sequence[Sequence[str]], index: int) -> str:
    made = repr(inputs) if isinstance(inputs, Recipe) else json.dumps(list(inputs[index]))
    parts = [program.bytecode, exact.bytecode, made.encode(), str(index).encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]
