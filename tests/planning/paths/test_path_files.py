"""Files of paths that somebody edited, cut off or made for something else: an error that says what is wrong."""

import json
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pcp
from pcp import Path
from pcp.backends import Placement, Target, UnknownDevice
from pcp.kernels import UnknownKernel, kernel_named, sites_of
from pcp.planning.paths.kinds import PARTS, NotAPath
from pcp.planning.paths.path import PathMismatch
from pcp.planning.paths.preparation import prepared
from pcp.planning.paths.transfer import transferred
from pcp.rewrite.regions import UnknownOperation

PROGRAM = pcp.trace(lambda x, w: pcp.ops.tanh(x @ w), *[pcp.spec((64, 64), "f32")] * 2)
SITE = sites_of(PROGRAM, "cpu")[0]
PATH = Path.of(PROGRAM, {SITE.key: kernel_named(SITE.kernels[0])}, {"xla_cpu_enable_fast_math": False}, 0.0)
ROWS = pcp.trace(lambda x, w: pcp.ops.tanh(x @ w), pcp.spec((32, 64), "f32"), pcp.spec((64, 64), "f32"))
IN_PARTS = Path.of(ROWS, forms=(PARTS.move(2),))


def changed(**entries: Any) -> str:
    return json.dumps(json.loads(PATH.to_json()) | entries)


def test_the_path_itself_is_followed() -> None:
    assert Path.from_json(PATH.to_json()) == PATH
    assert pcp.plan(PROGRAM, path=PATH).path == PATH


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (PATH.to_json()[:-20], r"is not JSON .*expected what Path.save writes"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "expected JSON as Path.save writes it"),
        (changed(format=2), r"has format 2; this version of PCP reads format 1"),
        (json.dumps({"format": 1}), "the path has no program; .*plan again"),
        (changed(program=7), r"the program of the path is 7; expected 64 hexadecimal digits"),
        (
            changed(options=[["xla_cpu_enable_fast_math", [1]]]),
            r"the options of the path .*expected pairs of a name",
        ),
        (
            changed(options=[["xla_cpu_enable_fast_math", 10**30]]),
            r"the options of the path .*expected pairs of a name",
        ),
        (changed(options=[["a", 1e400]]), r"the options of the path"),
        (changed(options=[["a", 1], ["a", 2]]), "chooses twice"),
        (changed(choices=[["abc", "product.xla:bf16", 1]]), r"the choices of the path .*expected a site"),
        (changed(choices=[[SITE.key, SITE.kernels[0], "1"]]), r"the choices of the path .*expected a site"),
        (
            changed(backend=7),
            "the backend of the path is 7; expected the name of a backend, as xla: plan again",
        ),
        (
            changed(placement=[]),
            r"the placement of the path is \[\]; expected pairs of an operation of 64 hexadecimal digits, each once, and its p",
        ),
        (
            changed(placement=[[SITE.key, "arena"]]),
            r"the placement of the path is .*, as arena:cpu:0: plan again",
        ),
        (changed(placement=[[SITE.key, "arena:cpu:0"]] * 2), r"the placement of the path is .* each once"),
        (
            changed(parts=2),
            "the parts of the path are 2; expected none, as the path says nothing of how its program is prepared: plan",
        ),
        (json.dumps(json.loads(IN_PARTS.to_json()) | {"parts": 0}), "the parts of the path are 0; expected"),
        (
            changed(resharded=[]),
            "the path has 'resharded', which this version of PCP does not know; expected only backend, .*plan",
        ),
        (json.dumps(json.loads(IN_PARTS.to_json()) | {"parts": True}), "the parts of the path are True; exp"),
    ],
)
def test_what_is_no_path(text: str, match: str, tmp_path: FilePath) -> None:
    (tmp_path / "path.json").write_text(text)
    with pytest.raises(NotAPath, match=match) as raised:
        Path.load(tmp_path / "path.json")
    assert "path.json: " in str(raised.value)


def test_a_path_holds_in_how_many_parts_the_batch_is_computed(tmp_path: FilePath) -> None:
    assert "parts" not in json.loads(PATH.to_json())  # as paths that were written before
    divided = prepared(ROWS, forms=(PARTS.move(2),))
    (site,) = sites_of(divided, "cpu")
    path = Path.of(ROWS, {site.key: kernel_named("product.xla:bf16")}, forms=(PARTS.move(2),))
    assert len({path.digest, IN_PARTS.digest, Path.of(ROWS).digest}) == 3
    path.save(tmp_path / "path.json")
    assert Path.load(tmp_path / "path.json") == path
    plan = pcp.plan(ROWS, path=path)
    assert "as given: 1 product.xla:bf16; the batch in 2 parts" in str(plan)
    assert plan.to_json()["parts"] == 2
    x, w = np.split(np.random.default_rng(0).normal(size=(96, 64)).astype(np.float32), [32])
    found = np.asarray(plan.run(x, w), np.float64)
    exact = np.tanh(x.astype(np.float64) @ w.astype(np.float64))
    assert 1e-4 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 1e-2  # of bfloat16


def test_parts_are_followed_at_other_sizes() -> None:
    def rows(size: int) -> pcp.Program:
        return pcp.trace(
            lambda x, w: pcp.ops.tanh(x @ w), pcp.spec((size, 64), "f32"), pcp.spec((64, 64), "f32")
        )

    (site,) = sites_of(prepared(ROWS, forms=(PARTS.move(2),)), "cpu")
    path = Path.of(ROWS, {site.key: kernel_named("product.xla:bf16")}, forms=(PARTS.move(2),))
    moved = transferred(path, ROWS, rows(16), "cpu")
    assert moved is not None
    assert (moved.parts, [choice.kernel for choice in moved.choices.values()]) == (2, ["product.xla:bf16"])
    assert moved.applied(rows(16)).text.count("stablehlo.while") == 1
    assert transferred(path, ROWS, rows(15), "cpu") is None


def test_parts_that_a_program_does_not_have() -> None:
    text = json.dumps(json.loads(IN_PARTS.to_json()) | {"parts": 3})
    with pytest.raises(
        PathMismatch, match=r"the batch of program .* cannot be computed in 3 parts; plan again"
    ):
        pcp.plan(ROWS, path=Path.from_json(text))


@pytest.mark.cpu
def test_a_kernel_that_is_unknown_or_does_not_apply() -> None:
    with pytest.raises(UnknownKernel, match=r"there is no kernel 'product.mine'; choose one of"):
        pcp.plan(PROGRAM, path=Path.from_json(changed(choices=[[SITE.key, "product.mine", 1]])))
    foreign = next(
        kernel
        for family in pcp.kernels.FAMILIES.values()
        if family.name != SITE.family
        for kernel in family.kernels.values()
    )
    with pytest.raises(
        PathMismatch, match=rf"kernel {foreign.name} compute site .*does not apply on cpu: there are .*plan"
    ):
        pcp.plan(PROGRAM, path=Path.from_json(changed(choices=[[SITE.key, foreign.name, foreign.version]])))
    choices = [["0" * 64, SITE.kernels[0], kernel_named(SITE.kernels[0]).version]]
    with pytest.raises(PathMismatch, match="no kernel applies to anything of that key"):
        pcp.plan(PROGRAM, path=Path.from_json(changed(choices=choices)))


def test_a_path_says_where_operations_run() -> None:
    path = Path.from_json(changed(placement=[["1" * 64, "arena:cpu:0"], ["0" * 64, "arena:cpu:0"]]))
    assert path.placement == Placement((("0" * 64, "arena:cpu:0"), ("1" * 64, "arena:cpu:0")))
    assert path.digest != PATH.digest
    assert not path.is_plain
    assert Path.from_json(path.to_json()) == path


@pytest.mark.parametrize(
    ("place", "error", "match"),
    [
        ("arena:cpu:0", UnknownOperation, "1 of 1 operations that are told where to run are not in program"),
        ("arena:cpu:7", UnknownDevice, "'cpu:7' is not a device of this machine"),
        (
            "soroban:cpu:0",
            PathMismatch,
            r"operations run on soroban:cpu:0, and backend 'soroban' is not here; there are: arena, .*; plan again",
        ),
    ],
)
def test_a_placement_that_does_not_fit(place: str, error: type[Exception], match: str) -> None:
    path = Path.from_json(changed(placement=[["0" * 64, place]]))
    with pytest.raises(error, match=match):
        pcp.plan(PROGRAM, path=path)


@pytest.mark.parametrize("given", ["path.json", {"format": 1}, 3])
def test_what_is_no_path_at_all(given: Any) -> None:
    with pytest.raises(NotAPath, match=r"expected a Path, as Plan.path, or pcp.Path.load"):
        pcp.plan(PROGRAM, path=given)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("0" * 64),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=150)
def test_whatever_is_changed_in_a_file(data: st.DataObject) -> None:
    """One place of the file, at any depth, becomes anything, or is left out; or the text is cut or has another character."""
    found = json.loads(PATH.to_json())
    place: Any = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    if data.draw(st.booleans()):
        place[key] = data.draw(JSON)
    else:
        del place[key]
    text = json.dumps(found)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, len(text))) :]
    try:
        path = Path.from_json(text)
        path.check_sites(PROGRAM, Target.of("cpu:0"))
        path.applied(PROGRAM)
    except pcp.PCPError:
        return
    assert path.program == PATH.program
