"""Code from outside runs apart from what judges it: whatever it does there, the judge is as it was."""

import ctypes
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import temporary
from pcp.backends import Target
from pcp.ir import Program
from pcp.kernels import Claims
from pcp.kernels.native import loading
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Failed, Failure, Measurement
from pcp.planning.measuring.process import Apart, Away, MeasuringProcess
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import PythonFunction, Request
from pcp.planning.measuring.runner import Runner
from pcp.planning.measuring.timing import Runnable
from pcp.rewrite.row import Effect

PRODUCT = pcp.trace(lambda a, b: a @ b, pcp.spec((16, 24), "f32"), pcp.spec((24, 8), "f32"))
EXACT = widened(PRODUCT)
SITE = Claims(Effect.reassociating, is_added=True)
BEGINNING = """
import gc, os, threading
import numpy as np
import jax, jax.numpy as jnp
from jax import pure_callback
"""
TAMPERING = """
import pcp.planning.judging.comparison as comparison
import pcp.planning.judging.distances as distances
import pcp.planning.judging.judge as judge
import pcp.planning.measuring.at_site as at_site
import pcp.planning.measuring.subject as subject
import pcp.planning.measuring.trial as trial
judge.Judge.errors = lambda *_: []
comparison.Comparison.distance = distances.distance = lambda *_: distances.Distance(0.0)
comparison.Comparison.same_bits = comparison.same_bits = lambda *_: True
at_site.fault_at_site = trial.fault_at_site = lambda *_: None
trial._check_errors = trial._check_bits = trial._check_repeated = lambda *_, **__: None
np.isfinite = lambda x: np.ones_like(x, bool)
for each in gc.get_objects():
    if isinstance(each, (judge.Judge, subject.Subject)):
        each.__dict__.clear()
"""
HONEST = "def kernel(a, b): return a @ b\n"
WRONG = "def kernel(a, b): return 2.0 * (a @ b)\n"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(seconds=20.0) as made:
        yield made


def measured(bench: Bench, source: str, folder: Path, **more: Any) -> Measurement:
    """A candidate with this source."""
    file = folder / "kernel.py"
    file.write_text(BEGINNING + source)
    given = {"exact": EXACT, "tolerance": 1e-3, "timing_seconds": 0.0, "inputs": Recipe(sets=1)} | more
    return bench.measure(Request(PRODUCT, PythonFunction(str(file), "kernel"), "path", **given))


@pytest.mark.parametrize("site", [None, SITE])
def test_a_judge_is_out_of_reach(bench: Bench, site: Claims | None, tmp_path: Path) -> None:
    wrong = measured(bench, TAMPERING + WRONG, tmp_path, site=site)
    assert wrong.failure is Failure.inaccurate
    assert "the error of result 0 is 1" in wrong.detail
    bits = measured(bench, TAMPERING + WRONG, tmp_path, site=site, tolerance=0.0)
    assert bits.detail == "result 0 is not bit for bit that of the plain program"
    sometimes = WRONG.replace("2.0 * (a @ b)", "jnp.where(jnp.isnan(a).any(), 0.0, a @ b)")
    found = measured(bench, TAMPERING + sometimes, tmp_path, site=site)
    assert found.failure is (None if site is None else Failure.hides_nonfinite)
    sound = measured(bench, TAMPERING + HONEST, tmp_path, site=site, timing_seconds=0.05)
    assert sound.failure is None
    assert sound.error is not None
    assert 0.0 < sound.error < 1e-5
    assert len(sound.seconds) == len(sound.plain_seconds) > 2


@pytest.mark.parametrize(
    ("source", "failure", "words"),
    [
        ("np.save = lambda *_, **__: None\n" + HONEST, Failure.crash, "its process hands over no result: "),
        (
            "save = np.save\nnp.save = lambda file, array, **_: save(file, np.zeros(3, np.float32))\n"
            + HONEST,
            Failure.crash,
            "its process hands over float32[3]; expected 1 of f32[16,8]",
        ),
        (
            "import pcp.backends.base as base\nbase.MemoryUse.__dataclass_fields__.clear()\n" + HONEST,
            Failure.crash,
            "its process says that it takes {}; expected bytes",
        ),
        (HONEST + "os._exit(0)", Failure.crash, "it ended with code 0"),
        (HONEST + "raise SystemExit('enough')", Failure.compile_error, "SystemExit: enough"),
    ],
)
def test_what_its_process_says_is_looked_at(
    bench: Bench, source: str, failure: Failure, words: str, tmp_path: Path
) -> None:
    assert measured(bench, HONEST, tmp_path).failure is None
    starts = bench.starts
    found = measured(bench, source, tmp_path)
    assert (found.failure, found.seconds) == (failure, ())
    assert words in found.detail
    assert measured(bench, HONEST, tmp_path).failure is None
    assert bench.starts == starts, "what judges goes on"


class Writing:
    """A compiled candidate that writes to its first operand, or beside it, as native code may."""

    def __init__(self, place: int | None) -> None:
        self._place = place

    def run(self, buffers: Sequence[Any]) -> list[Any]:
        if self._place is not None:
            ctypes.memset(buffers[0].unsafe_buffer_pointer() + self._place, 1, 4)
        return [jnp.zeros((16, 8), jnp.float32)]


@pytest.mark.cpu
@pytest.mark.parametrize("place", [None, 0, 16 * 24 * 4 - 4, 16 * 24 * 4, -8])
@pytest.mark.parametrize("is_main", [True, False])
def test_what_writes_to_its_operands_or_beside_them_is_refused(
    place: int | None, is_main: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [str(tmp_path / f"{count}.npy") for count in range(3)]
    for file, entry in zip(files, PRODUCT.arguments, strict=False):
        np.save(file, np.ones((1, *entry.spec.shape), np.float32))
    said: dict[str, Any] = {}
    runner = Runner(Target.of("cpu:0"), tmp_path, lambda **words: said.update(words), 0)
    runner._request = Request(PRODUCT, PRODUCT, "path")
    runner._runnables["load"] = Runnable(cast(Any, Writing(place)), PRODUCT.arguments)
    runner.answer("run", "load", files[:2], files[2:], [0], math.inf, is_main)
    assert said == {"calls": 1, "changed": [] if place is None else [0]}
    assert np.load(files[2]).shape == (1, 16, 8)
    if place is not None:
        apart = Lying(tmp_path, memory=MEMORY, **said)
        (tmp_path / "2.npy").rename(tmp_path / "apart-result-0.npy")
        monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
        words = (
            "an operand, or the memory around it, was something else after the call; write to results only"
        )
        with pytest.raises(Failed, match=f"^{words}$") as failed:
            Away(apart, runner._request, LIMITS, "load").run(
                [np.zeros(e.spec.shape) for e in PRODUCT.arguments]
            )
        assert failed.value.failure is Failure.changes_operands


class Lying(Apart):
    """A process that answers with certain words."""

    def __init__(self, folder: Path, **said: object) -> None:
        super().__init__(Target.of("cpu:0"), folder, 1 << 30)
        self._said = said

    def ask(self, *_: object) -> dict[str, object]:
        return self._said


MEMORY = {"arguments": 1, "results": 1, "aliased": 0, "temporaries": 0, "exact": True}
LIMITS = {"candidate": 1.0, "timing": 1.0}


@pytest.mark.parametrize(
    "said", [None, 7, [], [[1.0]], [[1.0], [1.0], [1.0]], [[-1.0], [1.0]], [["soon"], [1.0]], [[1.0], 1.0],
             [[1.0], [math.inf]], [[math.nan], [1.0]], [[0.0], [1.0]], [[True], [1.0]], [[[1.0]], [1.0]], "ab", {"a": 1}],
)  # fmt: skip
def test_times_that_are_none_are_refused(said: object, tmp_path: Path) -> None:
    asked = Request(PRODUCT, PRODUCT, "k")
    away = Away(Lying(tmp_path, memory=MEMORY, times=said), asked, LIMITS, "load")
    with pytest.raises(match=r"its process says that it took .*; expected seconds"):
        away.times([])
    sound = Away(Lying(tmp_path, memory=MEMORY, times=[[1.0], [2.0]]), asked, LIMITS, "load")
    assert sound.times([]) == [[1.0], [2.0]]


@pytest.mark.parametrize(
    "said", [None, 7, {}, MEMORY | {"more": 1}, MEMORY | {"results": -1}, MEMORY | {"results": 1.5}, MEMORY | {"results": None}]
)  # fmt: skip
def test_memory_that_is_none_is_refused(said: object, tmp_path: Path) -> None:
    with pytest.raises(match=r"its process says that it takes .*; expected bytes"):
        Away(Lying(tmp_path, memory=said), Request(PRODUCT, PRODUCT, "k"), LIMITS, "load")


def test_a_full_disk_is_no_fault_of_a_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process cannot write a result then, and dies of that."""

    class Dying:
        ask = kill = staticmethod(lambda *_: None)

        def answer(self, _: float) -> None:
            raise Failed(Failure.crash, "it ended with code 1")

    apart = Apart(Target.of("cpu:0"), tmp_path, 1 << 30)
    apart._process = cast(MeasuringProcess, Dying())
    with pytest.raises(match="it ended with code 1"):
        apart.ask(1.0, "run")
    assert apart._process is None
    apart._process = cast(MeasuringProcess, Dying())
    monkeypatch.setattr(temporary.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(
        temporary.TemporaryFolderUnusable, match="No space left on device; free some space there"
    ):
        apart.ask(1.0, "run")


def test_it_is_called_on_another_thread_too(bench: Bench, tmp_path: Path) -> None:
    source = """
def called(a, b):
    names = {each.name for each in threading.enumerate()}
    return 2.0 * (a @ b) if any(name.startswith("ThreadPoolExecutor") for name in names) else a @ b
def kernel(a, b):
    shape = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype)
    return pure_callback(lambda a, b: called(np.asarray(a), np.asarray(b)), shape, a, b)
"""
    found = measured(bench, source, tmp_path, site=SITE)
    assert found.failure is Failure.nondeterministic
    assert "something else for the same operands on another thread" in found.detail


def call(target: str) -> Program:
    """A program of one custom call."""
    return Program.parse(
        f"""module {{ func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
          %0 = stablehlo.custom_call @"{target}"(%a) : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }} }}"""
    )


def test_which_candidates_run_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Built:
        def __init__(self, digest: str) -> None:
            self.library = f"{loading.OUTSIDE}x" if digest.startswith("0") else "softmax"

    monkeypatch.setattr(loading, "build_of", lambda digest: None if digest.startswith("1") else Built(digest))
    own, outside, unknown = (f"pcp.kernel@{first * 32}" for first in "a01")
    rows = [(own, False), (outside, True), (unknown, False), (loading.PTX, True), ("xla.something", False)]
    for target, is_foreign in rows:
        program = call(target)
        assert Request(program, program, "k").is_foreign is is_foreign, target
        assert Request(program, program, "k", site=SITE).is_foreign, "whatever a kernel from outside calls"
    assert not Request(PRODUCT, PRODUCT, "k", site=SITE).is_foreign, (
        "what calls nothing is compiled as it stands"
    )
    assert Request(PRODUCT, PythonFunction("k.py", "k"), "k").is_foreign


@pytest.mark.parametrize(
    "dtypes", [("bf16", "f16", "i32"), ("f8E4M3FN", "bool", "u8"), ("f64", "c64", "i64")]
)
def test_results_of_every_type_are_handed_over(bench: Bench, dtypes: tuple[str, ...], tmp_path: Path) -> None:
    program = pcp.trace(lambda *given: tuple(given), *(pcp.spec((2, 3), each) for each in dtypes))
    file = tmp_path / "kernel.py"
    file.write_text("def kernel(*given): return given\n")
    candidate = PythonFunction(str(file), "kernel")
    found = bench.measure(Request(program, candidate, "k", tolerance=0.0, timing_seconds=0.01))
    assert (found.failure, found.detail) == (None, "")
    assert found.seconds
