"""Native kernels run wherever programs are compiled, refuse what they are not for, and are told from one another by digest."""

import json
import re
import threading
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import CompilationFailed, ExecutionFailed, Target
from pcp.distributed.verification import ProgramRefused, admit
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels.features import VARIABLE, masked
from pcp.kernels.native import LibraryDamaged, build_of, built, opened
from pcp.kernels.native.loading import is_admitted
from pcp.planning.measuring import trial
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.trial import donating
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.preparation import prepared
from tests.execution import exactly
from tests.kernels.native.programs import LIBRARY, arguments_of, calling, native_path, normed

ALLOWED = "PCP_NATIVE_KERNELS"


def flat(found: Any) -> list[Any]:
    return [np.asarray(each, np.float64) for each in jax.tree.leaves(found)]


def distance(mine: Any, theirs: Any) -> float:
    return max(
        float(np.linalg.norm(a - b) / np.linalg.norm(b))
        for a, b in zip(flat(mine), flat(theirs), strict=True)
    )


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 16), (40, 77), (257, 768), (5, 3001)])
def test_a_path_with_native_kernels_is_followed_from_its_file(
    tmp_path: FilePath, rows: int, width: int, norm: str
) -> None:
    program = normed(rows, width, norm)
    path = native_path(program)
    assert sorted(choice.kernel for choice in path.choices.values()) == [
        "normalisation.native",
        "normalisation_gradient.native",
    ]
    path.save(tmp_path / "path.json")
    arguments = arguments_of(program, rows)
    followed = pcp.plan(program, path=Path.load(tmp_path / "path.json"))
    assert "pcp.norm@" in str(followed.lowered.module())
    if width > 1:  # the gradient of x is 0 otherwise
        assert distance(followed.run(*arguments), exactly(program, *arguments)) < 2e-6
    again = followed.run(*arguments)
    for a, b in zip(flat(followed.run(*arguments)), flat(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_forward_kernel_hands_its_statistics_to_its_gradient() -> None:
    program = normed(50, 90)
    ready = prepared(program)
    arguments = arguments_of(program)
    exact = pcp.plan(program).run(*arguments)
    found = {site.family: site for site in kernels.sites_of(ready, "cpu")}
    gradient = {found["normalisation_gradient"].key: kernels.kernel_named("normalisation_gradient.native")}
    other = {found["normalisation"].key: kernels.kernel_named("normalisation.two_passes")}
    native = {found["normalisation"].key: kernels.kernel_named("normalisation.native")}
    for forward, operands in (({}, 3), (other, 3), (native, 5)):
        path = Path.of(program, gradient | forward)
        calls = re.findall(r'norm_gradient@\w+"?\(([^)]*)\)', str(path.applied(program).module()))
        assert [len(each.split(",")) for each in calls] == [operands]
        assert distance(pcp.plan(program, path=path).run(*arguments), exact) < 2e-6


def test_it_is_tried_with_the_memory_of_its_operands_where_it_calls_native_code(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    [site] = kernels.sites_of(
        prepared(pcp.trace(nn.layer_norm, *(pcp.spec(n, "f32") for n in ((8, 64), (64,), (64,))))), "cpu"
    )
    target = Target.of("cpu:0")

    def asking(name: str) -> Request:
        candidate = kernels.replaced(site.region, kernels.kernel_named(name))
        recipe = Recipe(sets=1)
        return Request(
            site.region, candidate, name, inputs=recipe, target=target, calls=1, timing_seconds=0.0
        )

    names = ("normalisation.native", "normalisation.two_passes")
    subject = Subject(asking(names[0]), tmp_path)
    made = {name: donating(asking(name)) for name in names}
    assert made["normalisation.two_passes"] is None
    given_memory = made["normalisation.native"]
    assert given_memory is not None
    assert given_memory().executable.memory.aliased > 0
    given: list[bool] = []
    monkeypatch.setattr(trial, "fault_at_site", lambda *arguments: given.append(arguments[-1] is not None))
    native = kernels.kernel_named("normalisation.native")
    for claims in (native.claims, replace(native.claims, is_added=True)):
        trial.tried(subject, replace(asking(native.name), site=claims), str)
    assert given == [False, True], "only what comes from outside: these tests do it with PCP's own"


def test_calls_at_once_do_not_wait_for_each_other_for_ever() -> None:
    """Every thread of the pool is in a handler, which takes parts itself instead of waiting for tasks that have not begun."""
    specs = [pcp.spec((640, 256), "f32"), pcp.spec((256,), "f32")]
    program = pcp.trace(lambda x, s: tuple(nn.layer_norm(x * float(i), s) for i in range(8)), *specs)
    plan = pcp.plan(program, path=native_path(program))
    arguments = arguments_of(program)
    exact = pcp.plan(program).run(*arguments)
    found: list[float] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(distance(plan.run(*arguments)[1:], exact[1:]) for _ in range(10))
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100.0)
    assert len(found) == 60
    assert max(found) < 1e-5


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("handler", "takes", "makes", "epsilon", "words"),
    [
        ("norm", [(6,), (6,), (6,)], [(6,), (), ()], 1e-5, "x has shape [6]; expected [rows,width]"),
        ("norm", [(2, 6), (5,), (6,)], [(2, 6), (2,), (2,)], 1e-5, "scale has shape [5]; expected [6]"),
        ("norm", [(2, 6), (6,), (2, 6)], [(2, 6), (2,), (2,)], 1e-5, "bias has shape [2,6]; expected that of scale"),
        ("norm", [(2, 6), (6,), (6,)], [(2, 3), (2,), (2,)], 1e-5, "the result has shape [2,3]; expected that of x"),
        ("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (2,)], -1.0, "epsilon is no number from 0 on"),
        ("norm", [(2, 6), (6,)], [(2, 6), (2,), (2,)], 1e-5, "number of arguments"),
        ("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (2,)], None, "attributes"),
        ("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (3,)], 1e-5, "means and deviations have shapes [2] and [3]; expected [2]"),
        ("residual_norm", [(2, 6), (2, 5), (6,), (6,)], [(2, 6), (2, 6), (2,), (2,)], 1e-5, "the residual has shape [2,5]; expected that of x"),
        ("residual_norm", [(2, 6), (2, 6), (6,), (6,)], [(2, 3), (2, 6), (2,), (2,)], 1e-5, "the result has shape [2,3]; expected that of x"),
        ("norm_gradient", [(2, 6), (6,), (2, 6), (2,)], [(2, 6), (6,), (6,)], 1e-5, "come 1 arrays; expected none or two"),
        ("norm_gradient", [(2, 6), (6,), (2, 6), (2,), (1,)], [(2, 6), (6,), (6,)], 1e-5, "not float32 of shape [2]"),
        ("norm_gradient", [(2, 6), (6,), (1, 6)], [(2, 6), (6,), (6,)], 1e-5, "the cotangent has shape [1,6]"),
        ("norm_gradient", [(2, 6), (6,), (2, 6)], [(2, 6), (6,), (5,)], 1e-5, "scale and bias have shapes [6] and [5]"),
    ],
)  # fmt: skip
def test_a_handler_refuses_what_it_is_not_for(
    handler: str,
    takes: list[tuple[int, ...]],
    makes: list[tuple[int, ...]],
    epsilon: float | None,
    words: str,
) -> None:
    attributes = {} if epsilon is None else {"epsilon": epsilon, "centred": 1}
    program = calling(handler, takes, makes, **attributes)
    with pytest.raises((ExecutionFailed, CompilationFailed)) as raised:
        pcp.plan(program).run(*arguments_of(program))
    assert words in str(raised.value)


def test_a_handler_refuses_a_norm_that_is_neither_centred_nor_not() -> None:
    program = calling("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (2,)], epsilon=1e-5, centred=2)
    with pytest.raises(ExecutionFailed, match="centred is 2; expected 0 or 1"):
        pcp.plan(program).run(*arguments_of(program))


def test_empty_arrays_are_no_trouble() -> None:
    program = calling("norm_gradient", [(0, 6), (6,), (0, 6)], [(0, 6), (6,), (6,)], epsilon=1e-5, centred=1)
    of_x, of_scale, of_bias = pcp.plan(program).run(*arguments_of(program))
    assert of_x.shape == (0, 6)
    assert not np.asarray(of_scale).any()
    assert not np.asarray(of_bias).any()


def test_a_processor_with_less_gets_another_build() -> None:
    program = normed(30, 70)
    usual = built(LIBRARY)
    with masked("avx512f", "avx2"):
        plain = built(LIBRARY)
        assert plain.needs == ()
        assert plain.digest != usual.digest
        path = native_path(program)
        assert {choice.library for choice in path.choices.values()} == {plain.digest}
        arguments = arguments_of(program)
        mine = pcp.plan(program, path=path).run(*arguments)
    assert distance(mine, pcp.plan(program).run(*arguments)) < 2e-6
    if usual.needs:
        made = calling("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (2,)], epsilon=1e-5, centred=1)
        with (
            masked(*usual.needs),
            pytest.raises(CompilationFailed, match=r"was built for .*avx.*or which is hidden"),
        ):
            pcp.plan(made)


def test_a_path_that_names_a_kernel_that_is_not_here_says_what_is_missing() -> None:
    program = normed()
    path = native_path(program)
    with masked("library:normalisation"), pytest.raises(kernels.KernelUnavailable) as raised:
        pcp.plan(program, path=path)
    assert "has kernel normalisation.native compute site" in str(raised.value).replace("_gradient", "")
    assert f"cannot be had here: {VARIABLE} hides library:normalisation; plan again" in str(raised.value)


def test_a_path_names_the_build_unless_it_is_left_open() -> None:
    program = normed()
    made = native_path(program)
    text = made.to_json().replace(built(LIBRARY).digest, "0" * 32)
    other = Path.from_json(text)
    assert other.digest != made.digest
    with pytest.raises(
        PathMismatch, match=f"with build {'0' * 32} of the native library of kernel normalisation"
    ):
        pcp.plan(program, path=other)
    arguments = arguments_of(program)
    open_path = other.made_on("", "")
    assert '"normalisation.native",2]' in open_path.to_json()
    assert (
        distance(pcp.plan(program, path=open_path).run(*arguments), pcp.plan(program).run(*arguments)) < 2e-6
    )


def test_a_damaged_library_is_not_loaded(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = built(LIBRARY)
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    (tmp_path / "native").mkdir()
    copy = tmp_path / "native" / f"{usual.digest}.so"
    copy.write_bytes(usual.file.read_bytes()[:-1] + b"?")
    facts = usual.file.with_suffix(".json").read_text()
    (tmp_path / "native" / f"{usual.digest}.json").write_text(facts)
    build = build_of(usual.digest)
    assert build is not None
    assert build.file == copy
    with pytest.raises(
        LibraryDamaged, match=r"is not the library that was built: its digest is .*expected .*remove it"
    ):
        opened(build)


def test_a_build_that_is_not_here_is_named(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    program = calling("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (2,)], epsilon=1e-5, centred=1)
    usual = built(LIBRARY)
    text = str(program.module()).replace(usual.digest, "ab" * 16)
    with pytest.raises(CompilationFailed) as raised:
        pcp.plan(pcp.Program.parse(text))
    assert f"native library with digest {'ab' * 16}, which this machine does not have" in str(raised.value)
    assert f"normalisation@{usual.digest}" in str(raised.value)
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompilationFailed, match="there are none at all: run `pcp kernels build`"):
        pcp.plan(program)


def test_only_libraries_on_the_list_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    program, digest = (
        calling("norm", [(2, 6), (6,), (6,)], [(2, 6), (2,), (2,)], epsilon=1e-5, centred=1),
        built(LIBRARY).digest,
    )
    for allowed in ("normalisation", f"other, normalisation@{digest}", "all"):
        monkeypatch.setenv(ALLOWED, allowed)
        pcp.plan(program)
    monkeypatch.setenv(ALLOWED, "none")
    with pytest.raises(
        CompilationFailed, match=f"not allowed here: {ALLOWED} does not name normalisation@{digest}"
    ):
        pcp.plan(program)
    assert kernels.missing_here("cpu")["normalisation.native"] == f"{ALLOWED} does not name normalisation"
    names = {name for site in kernels.sites_of(prepared(normed()), "cpu") for name in site.kernels}
    assert "normalisation.two_passes" in names
    assert "normalisation.native" not in names


@pytest.mark.cpu
def test_a_worker_admits_calls_of_builds_that_its_user_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child of the Worker verifies and compiles, with the library of this machine; then this process runs it."""
    program, digest = (
        calling("norm", [(4, 6), (6,), (6,)], [(4, 6), (4,), (4,)], epsilon=1e-5, centred=1),
        built(LIBRARY).digest,
    )
    sent = {"step": program.artifact()}
    module = program.module()
    (call,) = named_operations(module.operation, "stablehlo.custom_call")
    for allowed in ("all", "normalisation", f"normalisation@{'0' * 32}"):
        monkeypatch.setenv(ALLOWED, allowed)
        assert not is_admitted(call)
    with pytest.raises(
        ProgramRefused, match=r"stablehlo.custom_call, which is refused: it would run native code"
    ):
        admit(sent, "cpu:0", 4 << 30, 100.0)
    monkeypatch.setenv(ALLOWED, f"normalisation@{digest}")
    assert is_admitted(call)
    admitted = admit(sent, "cpu:0", 4 << 30, 100.0)["step"]
    x, scale, bias = arguments_of(admitted)
    found, means, _ = pcp.plan(admitted).run(x, scale, bias)
    np.testing.assert_allclose(means, x.mean(-1), atol=1e-6)
    centred = x - x.mean(-1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(found, exact, atol=1e-5)
    columns = (
        "operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>], "
        "result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>], api_version = 4 : i32"
    )
    turned = pcp.Program.parse(str(program.module()).replace("api_version = 4 : i32", columns))
    assert "result_layouts" in str(turned.module())
    module = turned.module()
    (call,) = named_operations(module.operation, "stablehlo.custom_call")
    assert not is_admitted(call)


def test_what_is_built_is_described_beside_it() -> None:
    build = built(LIBRARY)
    facts = json.loads(build.file.with_suffix(".json").read_text())
    assert facts["library"] == "normalisation"
    assert facts["source"] == LIBRARY.source_digest
    assert build_of(build.digest) == build
