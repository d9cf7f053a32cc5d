"""What candidates are compared with: the plain program, its arguments, its results and those in float64.

This runs in the child. The float64 results of a large program take long, so they are kept in files, which another child finds.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Backend, Device, Executable
from pcp.backends.base import Buffer, OutOfMemory
from pcp.ir import Program, Result, Role
from pcp.planning.oracle import widened_arrays
from pcp.planning.random_inputs import Recipe, random_arguments
from pcp.planning.timing import Runnable, awaited, completed
from pcp.planning.tolerance import FLOAT32_FAILS, ResultError, error_of, errors_of, judged

log = logging.getLogger("pcp.planning.subject")

_SMALL = 1 << 20

Array = np.ndarray[Any, Any]


class Subject:
    """A plain program on some lists of arguments, ready to be compared with candidates.

    Arguments:
        program: the plain program.
        exact: the same in float64, if errors are wanted.
        inputs: a recipe, or files of arrays, one list for each call.
        exact_inputs: how many of the lists are judged by `exact`.
        folder: for results.
    """

    def __init__(
        self,
        program: Program,
        exact: Program | None,
        inputs: Recipe | Sequence[Sequence[str]],
        exact_inputs: int | None,
        folder: Path,
        backend: Backend,
        device: Device,
        stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        stage("compiling the plain program")
        self.program = program
        self.backend, self.device = backend, device
        self.plain = Runnable(backend.compile(program, device, {}, cache=True), program.arguments)
        self._inputs = inputs
        sets = inputs.sets if isinstance(inputs, Recipe) else len(inputs)
        self.inputs: list[list[Buffer]] = []
        self._exact: list[Path] = []
        self._plain: list[Path] = []
        self.deterministic = True
        judged_exactly = 0 if exact is None else sets if exact_inputs is None else min(exact_inputs, sets)
        oracle = None if exact is None else Oracle(exact, backend, device)
        for index in range(sets):
            stage("inputs")
            arrays = self._arrays(index)
            stage("float64")
            if oracle is not None and index < judged_exactly:
                kept = folder / f"exact-{_key(program, oracle.program, inputs, index)}"
                if not kept.exists():
                    _keep(kept, oracle.run(list(widened_arrays(program.arguments, arrays))))
                self._exact.append(kept)
            stage("plain")
            placed = place(program, arrays, backend, device)
            del arrays
            results = completed(self.plain, placed, backend, device)
            kept = folder / f"plain-{os.getpid()}-{_key(program, program, inputs, index)}"
            _keep(kept, results)
            self._plain.append(kept)
            if index == 0:
                again = completed(self.plain, placed, backend, device)
                self.deterministic = all(map(same_bits, results, again))
                del again
            del results
            self.inputs.append(placed)
        self._unsure = self._uncomputable() if judged_exactly < sets else set()

    @property
    def bytes(self) -> int:
        """Memory that its arguments take."""
        return len(self.inputs) * sum(entry.spec.bytes for entry in self.program.arguments)

    def close(self) -> None:
        """Remove its files, but for the float64 results."""
        for path in self._plain:
            shutil.rmtree(path, ignore_errors=True)

    def plain_results(self, index: int) -> Iterator[Array]:
        """The results of the plain program on one list of arguments."""
        return _loaded(self._plain[index], self.program.results)

    def errors(self, index: int, found: Sequence[Any]) -> tuple[list[ResultError], bool]:
        """The errors of results on one list of arguments, and whether they are those against float64.

        Where no float64 results are asked for, plain ones take their place, but for what float32 cannot compute.
        """

        def changes(results: Iterator[Any]) -> Iterator[Array]:
            return judged(self.program, self.inputs[index], results)

        if index < len(self._exact):
            exact = _loaded(self._exact[index], self.program.results)
            plain = self.plain_results(index)
            return errors_of(self.program, changes(exact), changes(plain), changes(iter(found))), True
        errors = []
        pairs = zip(changes(self.plain_results(index)), changes(iter(found)), strict=True)
        for place, (plain_change, change) in enumerate(pairs):
            entry = self.program.results[place]
            if not entry.spec.dtype.is_differentiable:
                error = 0.0 if np.array_equal(plain_change, change) else float("inf")
            elif place in self._unsure:
                finite = np.isfinite(change) | ~np.isfinite(plain_change)
                error = 0.0 if finite.all() else float("inf")
            else:
                error = error_of(change, plain_change)
            errors.append(ResultError(entry.name or str(place), error, 0.0))
        return errors, False

    def _uncomputable(self) -> set[int]:
        """The results of which float32 computes less than four digits, by the first list of arguments."""
        if not self._exact:
            return set()
        arguments = self.inputs[0]
        exact = judged(self.program, arguments, _loaded(self._exact[0], self.program.results))
        plain = judged(self.program, arguments, self.plain_results(0))
        return {
            index
            for index, (y64, y32) in enumerate(zip(exact, plain, strict=True))
            if self.program.results[index].spec.dtype.is_differentiable and error_of(y32, y64) > FLOAT32_FAILS
        }

    def _arrays(self, index: int) -> list[Array]:
        if not isinstance(self._inputs, Recipe):
            return [
                _load(path, entry.spec.dtype.numpy)
                for path, entry in zip(self._inputs[index], self.program.arguments, strict=True)
            ]
        arrays = random_arguments(self.program.arguments, self._inputs, index)
        for call in range(self._inputs.warm_calls):
            placed = place(self.program, arrays, self.backend, self.device)
            results = completed(self.plain, placed, self.backend, self.device)
            fresh = random_arguments(self.program.arguments, self._inputs, index + (call + 1) * 1000)
            arrays = [
                array if entry.role is Role.weight else other if entry.alias is None
                else np.asarray(results[entry.alias])
                for entry, array, other in zip(self.program.arguments, arrays, fresh, strict=True)
            ]  # fmt: skip
        return arrays


class Oracle:
    """A program in float64, run where it fits.

    Arguments:
        program: in float64.
        device: where the others run; what does not fit there runs on the processor.
    """

    def __init__(self, program: Program, backend: Backend, device: Device) -> None:
        self.program = program
        self._backend, self._device = backend, device
        self._executable: Executable | None = None

    def run(self, arrays: Sequence[Array]) -> list[Buffer]:
        """The results for arguments in float64, whose copies on the device are consumed: memory is short here."""
        try:
            return self._run(arrays)
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
            return self._run(arrays)

    def _run(self, arrays: Sequence[Array]) -> list[Buffer]:
        if self._executable is None:
            self._executable = self._backend.compile(self.program, self._device, {}, cache=True)
        return awaited(self._executable.run(place(self.program, arrays, self._backend, self._device)))


def place(program: Program, arrays: Iterable[Array], backend: Backend, device: Device) -> list[Buffer]:
    """The arguments of a program on a device."""
    return [
        backend.place(array, entry.spec, device, alias=False)
        for array, entry in zip(arrays, program.arguments, strict=True)
    ]


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays are equal bit for bit."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(_bytes(a), _bytes(b)))


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _key(program: Program, exact: Program, inputs: Recipe | Sequence[Sequence[str]], index: int) -> str:
    made = repr(inputs) if isinstance(inputs, Recipe) else json.dumps(list(inputs[index]))
    parts = [program.bytecode, exact.bytecode, made.encode(), str(index).encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def _keep(folder: Path, results: Sequence[Any]) -> None:
    """Write results to a folder, which is there only when it is whole."""
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for index, result in enumerate(results):
        np.save(temporary / f"{index}.npy", np.asarray(result))
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)


def _loaded(folder: Path, entries: Sequence[Result]) -> Iterator[Array]:
    for index, entry in enumerate(entries):
        yield _load(str(folder / f"{index}.npy"), entry.spec.dtype.numpy)


def _load(path: str, dtype: Any) -> Array:
    """An array of a file, by mmap if it is large; NumPy does not remember the types it does not have, like bf16."""
    large = os.path.getsize(path) > _SMALL
    array: Array = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
    return array.view(dtype) if array.dtype.kind == "V" else array
