"""Added kernels are kept by their content, and stand at the sites of programs of any order of axes."""

import functools
import importlib.util
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest
from tests.kernels.planted import Planted

import pcp
from pcp import nn
from pcp.autodiff.gradient import value_and_vjp
from pcp.backends import Target
from pcp.kernels import FAMILIES, KernelNotAdded, apply_kernels, sites_of
from pcp.kernels.candidate import Candidate
from pcp.kernels.jax_lowering import lowered_text
from pcp.kernels.manifest import InvalidCandidate
from pcp.kernels.problems import Problem, problem
from pcp.planning.added import Added, CannotAdd, NotAdded, Store, lowering, register_added
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.paths.path import Path as PlanPath
from pcp.planning.search import site_checks
from pcp.planning.search.loop import answered
from pcp.planning.search.question import Question
from pcp.planning.search.site_classes import site_classes
from pcp.rewrite.raising import raised

EXAMPLE = Path(__file__).parents[3] / "examples" / "kernels" / "product_text"
RNG = np.random.default_rng(11)
HONEST = {
    "product": "def kernel(x, y, contract, batch):\n    return product(x, y, contract, batch)",
    "softmax": "def kernel(x, axis):\n    return softmax(x, axis)",
    "normalisation": "def kernel(x, *rest, **attributes):\n    return normalisation(x, *rest, **attributes)",
    "attention": "def kernel(query, key, value, causal):\n    return attention(query, key, value, causal)",
    "cross_entropy": "def kernel(logits, targets):\n    return cross_entropy(logits, targets)",
    "embedding_gradient": "def kernel(indices, updates, rows):\n    return embedding_gradient(indices, updates, rows)",
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has a store of its own, and leaves no kernel behind."""
    monkeypatch.setenv("PCP_DATA_DIR", str(tmp_path / "data"))
    yield
    register_added(Store(tmp_path / "nothing"))


@pytest.fixture
def lowered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower in this process: starting one takes seconds, and this file's kernels are harmless."""

    def asked(candidate: Candidate, problem: Problem, *_: object) -> str:
        file = candidate.folder / candidate.file
        described = importlib.util.spec_from_file_location("kernel_from_a_test", file)
        assert described is not None
        assert described.loader is not None
        module = importlib.util.module_from_spec(described)
        described.loader.exec_module(module)
        assert candidate.function is not None
        function = functools.partial(getattr(module, candidate.function), **problem.attributes)
        return lowered_text(function, problem.specs)

    monkeypatch.setattr(lowering, "lowered_by_child", asked)


def entered(planted: Planted, folder: Path) -> Added:
    planted.plant(folder)
    store = Store()
    with store.staged(folder) as (candidate, digest):
        return store.enter(candidate, digest, {"accepted": True})


def _attend(causal: bool) -> Any:
    return lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, causal=causal)


def _dot(contract: Any, batch: Any) -> Any:
    return lambda x, y: pcp.dot_general(x, y, contract, batch)


PROGRAMS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("product", _dot(((2,), (0,)), ((), ())), ("3,5,7", "7,4")),
    ("product", _dot(((1,), (1,)), ((), ())), ("5,7", "4,7")),
    ("product", _dot(((0,), (0,)), ((), ())), ("7,5", "7,4")),
    ("product", _dot(((0,), (1,)), ((), ())), ("7,5", "4,7")),
    ("product", _dot(((0, 1), (0, 1)), ((), ())), ("3,5,7", "3,5,4")),
    ("product", _dot(((3,), (2,)), ((0, 2), (0, 1))), ("2,5,3,7", "2,3,7,4")),
    ("softmax", lambda x: pcp.softmax(x, 1), ("3,5,7",)),
    ("softmax", lambda x: pcp.softmax(x, -1), ("3,5,7",)),
    ("normalisation", nn.layer_norm, ("3,5,7", "7", "7")),
    ("normalisation", nn.layer_norm, ("3,5,7", "7")),
    ("normalisation", nn.rms_norm, ("5,7", "7")),
    ("attention", _attend(True), ("2,5,3,4", "2,5,3,4", "2,5,3,4")),
    ("attention", _attend(False), ("2,5,3,4", "2,9,3,4", "2,9,3,4")),
    ("cross_entropy", nn.negative_log_likelihood, ("3,5,7", "i3,5")),
]


@pytest.mark.usefixtures("lowered_here")
@pytest.mark.parametrize("place", range(len(PROGRAMS)))
def test_a_kernel_stands_at_a_site_of_any_order_of_axes(place: int, tmp_path: Path) -> None:
    family, function, shapes = PROGRAMS[place]
    entered(Planted(f"{family}.added", HONEST[family]), tmp_path / "kernel")
    [kernel] = register_added()
    specs = [_spec(shape) for shape in shapes]
    program = raised(pcp.trace(function, *specs))
    sites = [site for site in sites_of(program, "cpu") if site.family == family]
    assert sites
    assert all(kernel.name in site.kernels for site in sites)
    changed = apply_kernels(program, {site.key: kernel for site in sites})
    assert changed.digest != program.digest
    arguments = [
        RNG.integers(-1, 9, spec.spec.shape).astype(np.int32)
        if "i" in shape
        else RNG.standard_normal(spec.spec.shape).astype(np.float32)
        for shape, spec in zip(shapes, specs, strict=True)
    ]
    expected = pcp.plan(program).run(*arguments)
    np.testing.assert_allclose(pcp.plan(changed).run(*arguments), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.usefixtures("lowered_here")
@pytest.mark.parametrize(("window", "stands"), [(3, False), (9, True)])
def test_a_kernel_of_causal_attention_stands_at_no_window(window: int, stands: bool, tmp_path: Path) -> None:
    entered(Planted("attention.added", HONEST["attention"]), tmp_path / "kernel")
    [kernel] = register_added()
    program = pcp.trace(
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, causal=True, window=window),
        *[_spec("2,9,3,4")] * 3,
    )
    [site] = [site for site in sites_of(program, "cpu") if site.family == "attention"]
    assert (kernel.name in site.kernels) is stands


@pytest.mark.usefixtures("lowered_here")
def test_the_gradient_of_an_embedding(tmp_path: Path) -> None:
    family = "embedding_gradient"
    entered(Planted(f"{family}.added", HONEST[family]), tmp_path / "kernel")
    [kernel] = register_added()
    program = value_and_vjp(pcp.trace(lambda e, t: nn.embedding(t, e), _spec("7,5"), _spec("i3,6")), 0)
    [site] = [site for site in sites_of(program, "cpu") if site.family == family]
    assert kernel.name in site.kernels
    changed = apply_kernels(program, {site.key: kernel})
    table, cotangent = (RNG.standard_normal(shape).astype(np.float32) for shape in ((7, 5), (3, 6, 5)))
    tokens = RNG.integers(-2, 9, (3, 6)).astype(np.int32)
    expected = pcp.plan(program).run(table, tokens, cotangent)
    found = pcp.plan(changed).run(table, tokens, cotangent)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def _spec(text: str) -> Any:
    shape = [int(size) for size in text.removeprefix("i").split(",")]
    return pcp.spec(shape, "i32" if text.startswith("i") else "f32")


@pytest.mark.usefixtures("lowered_here")
def test_a_plan_names_the_kernel_with_its_content_and_holds_no_python(tmp_path: Path) -> None:
    added = entered(Planted("softmax.added", HONEST["softmax"]), tmp_path / "kernel")
    program = pcp.trace(lambda x: pcp.softmax(x, -1) * 2.0, pcp.spec((6, 9), "f32"))
    [kernel] = register_added()
    whole = raised(program)
    [site] = sites_of(whole, "cpu")
    path = PlanPath.of(program, {site.key: kernel})
    assert path.choices[site.key].kernel == added.name == f"softmax.added#{added.digest[:32]}"
    (added.candidate.folder / "kernel.py").chmod(0o600)
    plan = pcp.plan(program, path=path)
    assert not [op for op in plan.operations if op.name == "stablehlo.custom_call"]
    x = RNG.standard_normal((6, 9)).astype(np.float32)
    np.testing.assert_allclose(plan.run(x), pcp.plan(program).run(x), rtol=1e-5)
    Store().remove("softmax.added")
    with pytest.raises(
        KernelNotAdded, match=rf"kernel softmax\.added with content {added.digest[:32]} was added where"
    ) as missing:
        pcp.plan(program, path=path)
    assert "run `pcp kernels add FOLDER`" in str(missing.value)
    assert not [name for name in FAMILIES["softmax"].kernels if "#" in name]


def test_a_kernel_with_a_handler_of_its_own_is_refused_by_name(tmp_path: Path) -> None:
    source = "def kernel(x, axis):\n    return outside(lambda y: np.asarray(y), x, softmax(x, axis))"
    added = entered(Planted("softmax.added", source), tmp_path / "kernel")
    with pytest.raises(
        lowering.KernelNeedsHandler, match=r"calls xla_\w*callback\w*, which is not part of its program"
    ):
        lowering.lowered(added.candidate, added.digest)


@pytest.mark.usefixtures("lowered_here")
def test_one_that_cannot_be_lowered_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entered(Planted("softmax.added", "def kernel(x, axis):\n    return x[:1]"), tmp_path / "kernel")
    register_added()
    program = raised(pcp.trace(pcp.softmax, pcp.spec((6, 9), "f32")))
    with caplog.at_level(logging.WARNING):
        [site] = sites_of(program, "cpu")
    assert not [name for name in site.kernels if "#" in name]
    assert (
        "returns f32[1,9] for softmax (last_axis): x f32[6,9]; expected f32[6,9] and f32[6,9]" in caplog.text
    )


def test_the_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    planted = Planted("softmax.added", HONEST["softmax"])
    added = entered(planted, tmp_path / "kernel")
    assert [each.name for each in Store().all()] == [added.name]
    assert entered(planted, tmp_path / "kernel").digest == added.digest
    other = Planted("softmax.added", HONEST["softmax"] + "\n# changed")
    with pytest.raises(
        CannotAdd, match=r"softmax\.added with other content .* run `pcp kernels remove softmax\.added`"
    ):
        entered(other, tmp_path / "other")
    (added.candidate.folder / "kernel.py").write_text("def kernel(x, axis):\n    return x")
    with caplog.at_level(logging.WARNING):
        assert Store().all() == []
    assert "its content is not what was verified; add it again" in caplog.text
    with pytest.raises(NotAdded, match=r"no kernel named 'softmax\.added' was added; there are none at all"):
        Store().remove("softmax.added")
    (tmp_path / "kernel" / "link").symlink_to("kernel.py")
    with pytest.raises(CannotAdd, match="is a link or no plain file"):
        entered(planted, tmp_path / "kernel")
    with pytest.raises(InvalidCandidate, match=r"has no file kernel\.toml"), Store().staged(tmp_path):
        pass
    assert not [each for each in Store().folder.iterdir() if each.name not in ("verdicts", added.digest)]


def test_where_a_kernel_lies_does_not_tell_that_it_is_verified(tmp_path: Path) -> None:
    added = entered(Planted("softmax.added", HONEST["softmax"]), tmp_path / "kernel")
    with Store().staged(tmp_path / "kernel") as (candidate, _):
        staged = candidate.folder
    assert re.sub("[0-9a-f]{64}", "", str(staged)) == re.sub("[0-9a-f]{64}", "", str(added.candidate.folder))


@pytest.mark.usefixtures("lowered_here")
def test_text_stands_where_its_attributes_are(tmp_path: Path) -> None:
    posed = problem("normalisation", "layer", sizes={"rows": 6, "width": 9})
    (tmp_path / "kernel.mlir").write_text(posed.reference().text)
    (tmp_path / "kernel.toml").write_text(
        'name = "normalisation.added"\neffect = "exact"\nabout = "Itself."\nentry = "kernel.mlir"\n'
        '[problem]\nform = "layer"\nsizes = { rows = 6, width = 9 }\n'
    )
    with Store().staged(tmp_path) as (candidate, digest):
        Store().enter(candidate, digest, {"accepted": True})
    [kernel] = register_added()
    specs = [pcp.spec(shape, "f32") for shape in ((6, 9), (9,), (9,))]
    for epsilon, stands in ((1e-5, True), (1e-4, False)):
        program = pcp.trace(lambda *given, epsilon=epsilon: nn.layer_norm(*given, epsilon=epsilon), *specs)
        [site] = [each for each in sites_of(program, "cpu") if each.family == "normalisation"]
        assert (kernel.name in site.kernels) is stands
        if stands:
            x = [RNG.standard_normal(spec.spec.shape).astype(np.float32) for spec in specs]
            found = pcp.plan(apply_kernels(program, {site.key: kernel})).run(*x)
            np.testing.assert_allclose(found, pcp.plan(program).run(*x), rtol=1e-5, atol=1e-6)


def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    for name in ("kernel.mlir", "kernel.toml"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    for content, words in (
        (b"\xff\xfe", "codec can't decode"),
        (b"module {", "product.bf16_text for product"),
    ):
        (tmp_path / "kernel.mlir").write_bytes(content)
        with Store().staged(tmp_path) as (candidate, digest), pytest.raises(KernelNotLowered, match=words):
            lowering.lowered(candidate, digest)


class Verifying:
    """Evidence of sites, which says that whatever it is asked for holds."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.texts: list[str] = []
        self.target, self.seconds_left = Target.of("cpu:0"), 1.0

    def leaving(self, *_: float, of: float) -> AbstractContextManager[None]:  # noqa: ARG002  (there is time for all)
        return nullcontext()

    def known(self, subject: str) -> dict[str, Any]:  # noqa: ARG002  (as all)
        return self.rows

    def knows(self, question: Question) -> bool:  # noqa: ARG002  (all)
        return True

    def of(self, question: Question) -> Any:
        if question.label not in self.rows:
            self.texts.append(question.request().candidate.digest)
            self.rows[question.label] = SimpleNamespace(failure=None)
        return self.rows[question.label]


def test_a_kernel_counts_at_a_site_by_the_text_that_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is the same, but what it becomes is not: as by the clock, or on another machine."""
    added = entered(Planted("softmax.added", HONEST["softmax"]), tmp_path / "kernel")
    program = raised(pcp.trace(lambda x: pcp.softmax(x, -1), pcp.spec((4, 8), "f32")))
    evidence, names, labels = Verifying(), set(), []
    for factor in (1.0, 0.5, 0.5):
        monkeypatch.setattr(lowering, "lowered_by_child", _softmax_times(factor))
        lowering._known.clear()
        for kept in added.candidate.folder.parent.glob("lowered/*"):
            kept.unlink()
        [kernel] = register_added()
        [each] = site_classes(program, "cpu")
        path = PlanPath.of(program, {site.key: kernel for site in each.sites})
        search = functools.partial(site_checks.doubt_at_its_sites, path, [each])
        assert answered(search, cast(Any, evidence)) is None
        names.add(kernel.name)
        labels.append(site_checks._label(each, kernel))
    assert len(names) == 1
    assert labels[0] != labels[1] == labels[2]
    assert len(evidence.texts) == len(set(evidence.texts)) == 2  # each text is verified, once


def _softmax_times(factor: float) -> Callable[..., str]:
    def function(x: Any) -> Any:
        return jax.nn.softmax(x, -1) * factor

    return lambda candidate, problem, *_: lowered_text(function, problem.specs)  # noqa: ARG005
