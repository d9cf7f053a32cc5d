"""The child that runs kernels from outside: a program for `pcp.planning.verification.process` only.

It runs what it is told on the arrays that it is given and writes down what came out. Nothing is judged here, because code from
outside could change the judge.
"""

import functools
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp import backends
from pcp.autodiff import vjp
from pcp.backends import Executable, Target
from pcp.backends.jax_function import JAXFunction
from pcp.backends.jax_gradient import vjp_of
from pcp.backends.jax_guard import Guarded
from pcp.ir import Program, TensorSpec
from pcp.planning.measuring.child import Say, serve
from pcp.planning.measuring.timing import Variations
from pcp.planning.verification.fault import Fault
from pcp.processes.stranger import executed

_FEWEST, _ROUNDS = 5, 25
_LONGEST_PART = 300


class Refusal(Exception):
    """The candidate is at fault."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class VerifyingChild:
    """Runs one candidate after another."""

    def __init__(self, target: Target, _: Path, say: Say, __: int) -> None:
        self._target, self._say = target, say
        self._count = itertools.count()
        self._candidate: Callable[..., Any] | None = None
        self._gradient: Callable[..., Any] | None = None

    def answer(self, what: str, *words: Any) -> None:
        """Do what a request asks for, and say what came of it."""
        try:
            trial = getattr(self, f"_{what}")(*words)
        except Refusal as refusal:
            trial = {"fault": refusal.fault, "detail": _short(str(refusal))}
        except MemoryError as error:
            trial = {"fault": Fault.out_of_memory, "detail": str(error)}
        self._say(trial=trial)

    def _start(self) -> dict[str, Any]:
        """Answer that this process has begun."""
        return {}

    def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute the candidate's file."""
        self._gradient = None
        self._candidate = self._function(Path(request["folder"]) / request["file"], request["function"])
        if request["gradient"] is not None:
            name, _, function = request["gradient"].partition(":")
            self._gradient = self._function(Path(request["folder"]) / name, function)
        return {}

    def _function(self, file: Path, name: str) -> Callable[..., Any]:
        try:
            module = executed(file, f"kernel_from_outside_{next(self._count)}")
        except Exception as error:
            raise Refusal(
                Fault.compile_error, f"{file.name} cannot be imported: {_described(error)}"
            ) from None
        finally:
            sys.path.remove(str(file.parent))
        attribute = getattr(module, name, None)
        if not callable(attribute):
            raise Refusal(Fault.compile_error, f"{file.name} has no function {name!r}")
        function: Callable[..., Any] = attribute
        return function

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the candidate, or its gradient, on several lists of arguments in a given order, and write the results."""
        specs = request["specs"]
        executable, results = self._compiled(request, specs)
        arrays = [
            np.fromfile(path, spec.dtype.numpy).reshape(request["count"], *spec.shape)
            for path, spec in zip(request["inputs"], specs, strict=True)
        ]
        changed: list[int] = []
        done = 0
        deadline = time.perf_counter() + request["seconds"]
        files = [open(f"{request['results']}-{place}", "wb") for place in range(len(results))]  # noqa: SIM115
        try:
            for which in request["order"]:
                operands = [Guarded(array[which]) for array in arrays]
                for file, result in zip(files, _called(executable, operands, self._target), strict=True):
                    file.write(np.ascontiguousarray(result).tobytes())
                done += 1
                if not all(each.intact for each in operands):
                    changed.append(which)
                if time.perf_counter() > deadline:
                    break
        finally:
            for file in files:
                file.close()
        return {
            "changed": changed,
            "calls": done,
            "results": [[list(each.shape), each.dtype] for each in results],
        }

    def _time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time the plain program and the candidate in turn, each on arguments not seen before and on the same again."""
        specs = request["specs"]
        executable, _ = self._compiled(request, specs)
        plain_program = Program(request["plain"])
        plain = self._target.suited(plain_program).compile(plain_program)
        buffers = [
            self._target.place(np.fromfile(path, spec.dtype.numpy).reshape(spec.shape), spec)
            for path, spec in zip(request["inputs"], specs, strict=True)
        ]
        variations = Variations(plain_program.arguments, buffers, self._target)
        times: dict[str, list[float]] = {name: [] for name in ("plain", "plain_again", "own", "own_again")}
        order: list[tuple[str, Executable]] = [("plain", plain), ("own", executable)]
        least, most = request["seconds"]
        began = time.perf_counter()
        before = variations.next()
        for count in itertools.count():
            operands = variations.next()
            self._target.runner.wait(operands)
            for name, each in order:
                # The caches are full of the other program: after this call only the operands are new.
                _seconds(each, before, self._target)
                for suffix in ("", "_again"):
                    taken = _seconds(each, operands, self._target)
                    if count:  # the first calls warm up
                        times[name + suffix].append(taken)
            order.reverse()
            before = operands
            spent = time.perf_counter() - began
            if (spent > most and count >= _FEWEST) or (spent > least and count >= _ROUNDS):
                break
        return {"times": times}

    def _compiled(
        self, request: dict[str, Any], specs: Sequence[TensorSpec]
    ) -> tuple[Executable, list[TensorSpec]]:
        attributes = request["attributes"]
        try:
            if request["text"] is not None:
                program = Program.parse(request["text"])
                return _compiled_program(program, request["wrt"], specs, self._target)
            assert self._candidate is not None
            function: Callable[..., Any] = functools.partial(self._candidate, **attributes)
            if request["wrt"] is not None and self._gradient is not None:
                function = functools.partial(self._gradient, **attributes)
            elif request["wrt"] is not None:
                function = vjp_of(function, request["wrt"])
            executable = JAXFunction(function, specs, self._target)
        except backends.OutOfMemory as error:
            raise Refusal(Fault.out_of_memory, str(error)) from None
        except Refusal:
            raise
        except Exception as error:
            raise Refusal(Fault.compile_error, _described(error)) from None
        return executable, list(executable.results)


def _compiled_program(
    program: Program, wrt: list[int] | None, specs: Sequence[TensorSpec], target: Target
) -> tuple[Executable, list[TensorSpec]]:
    taken = [entry.spec for entry in program.arguments]
    expected = list(specs if wrt is None else specs[:-1])
    if taken != expected:
        raise Refusal(
            Fault.wrong_shape,
            f"it takes {', '.join(map(str, taken))}; the problem has {', '.join(map(str, expected))}",
        )
    if wrt is not None:
        program = vjp(program, wrt=tuple(wrt))
    return target.suited(program).compile(program, cache=False), [entry.spec for entry in program.results]


def _called(executable: Executable, guarded: Sequence[Guarded], target: Target) -> list[np.ndarray[Any, Any]]:
    try:
        results = executable.run([each.buffer for each in guarded])
        target.runner.wait(results)
        return [np.asarray(result) for result in results]
    except backends.OutOfMemory as error:
        raise Refusal(Fault.out_of_memory, str(error)) from None
    except backends.ExecutionFailed as error:
        full = "MemoryError" in str(error)  # in a callback
        raise Refusal(Fault.out_of_memory if full else Fault.run_error, str(error)) from None


def _seconds(executable: Executable, buffers: Sequence[Any], target: Target) -> float:
    began = time.perf_counter()
    try:
        target.runner.wait(executable.run(buffers))
    except (backends.OutOfMemory, backends.ExecutionFailed) as error:
        raise Refusal(Fault.run_error, str(error)) from None
    return time.perf_counter() - began


def _short(text: str) -> str:
    """The beginning and the end, where exceptions say what happened; between are stack frames."""
    line = " ".join(text.split())
    return line if len(line) <= 2 * _LONGEST_PART else f"{line[:_LONGEST_PART]} ... {line[-_LONGEST_PART:]}"


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, backends.CompilationFailed) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    serve(VerifyingChild)
