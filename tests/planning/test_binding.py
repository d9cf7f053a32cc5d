"""Plans that compute once what bound arguments decide: right results, shared and dropped values, and what may not be bound."""

import gc
import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench

import pcp
from pcp.backends import Target
from pcp.backends.regions import compiled_in_places
from pcp.backends.regions.bound import BoundExecutable, Rebinding, StagedExecutable
from pcp.importers.torch.imported import Imported
from pcp.ir import Program
from pcp.ir.operations import operations_of
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.kernels.products.kept import with_kept_panels
from pcp.planning.arguments import ArgumentNameMismatch
from pcp.planning.binding import InvalidBinds, bound_count
from pcp.planning.compiled import ArgumentDropped, CannotBind
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.timing import Variations, timed
from pcp.planning.measuring.trial import compiled
from pcp.planning.paths.kinds import BOUND, NotAPath
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.paths.transfer import transferred
from pcp.planning.search.site_classes import classes_of, decided_operands
from pcp.tracing import specs_of, trace

RNG = np.random.default_rng(0)
WEIGHTS = {name: RNG.normal(size=(16, 16)).astype("f") for name in ("a", "b", "c")}
OTHERS = {name: array + 1 for name, array in WEIGHTS.items()}
X = RNG.normal(size=(2, 16)).astype("f")


def forward(weights: dict[str, Any], x: Any) -> Any:
    return pcp.tanh(x @ (weights["a"] @ weights["b"])) @ weights["c"]


PROGRAM = trace(forward, WEIGHTS, pcp.spec(X.shape, "f32"))
PATH = Path.plain(PROGRAM).having(BOUND.name, [BOUND.move(3)])


@pytest.fixture(scope="module")
def plan() -> pcp.Plan:
    return pcp.plan(PROGRAM, "cpu:0", path=PATH)


def expected(weights: dict[str, Any], x: Any = X) -> Any:
    return np.tanh(x @ (weights["a"] @ weights["b"])) @ weights["c"]


def test_bound_and_unbound_calls_have_the_same_bits(plan: pcp.Plan) -> None:
    whole, bound = np.asarray(plan(WEIGHTS, X)), plan.bind(weights=WEIGHTS)
    assert (np.asarray(bound(X)) == whole).all()
    assert (np.asarray(plan.bind(WEIGHTS).run(X)) == whole).all()
    np.testing.assert_allclose(whole, expected(WEIGHTS), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(bound(X + 1), expected(WEIGHTS, X + 1), rtol=1e-4, atol=1e-3)


def test_others_are_computed_anew(plan: pcp.Plan) -> None:
    first, second = plan.bind(WEIGHTS), plan.bind(OTHERS)
    np.testing.assert_allclose(second(X), expected(OTHERS), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(first(X), expected(WEIGHTS), rtol=1e-4, atol=1e-3)


def test_it_says_how_much_is_kept(plan: pcp.Plan) -> None:
    assert "bound once  1.0 KiB from 2 values, when they are bound; until then in every call" in str(plan)
    bound = plan.bind(WEIGHTS)
    assert "bound once  1.0 KiB from 2 values\n" in str(bound)
    # a and b are dropped, and their product is kept.
    assert bound.memory["cpu:0"].arguments == plan.memory["cpu:0"].arguments - 2 * 1024
    assert "what the first 3 arguments alone decide computed once, when they are bound" in str(plan)


def test_what_nobody_reads_is_dropped(plan: pcp.Plan) -> None:
    placed = plan.place(WEIGHTS, X)[0]
    gone, stays = weakref.ref(placed["a"]), weakref.ref(placed["c"])
    bound = plan.bind(placed)
    del placed
    gc.collect()
    assert gone() is None
    assert stays() is not None
    np.testing.assert_allclose(bound(X), expected(WEIGHTS), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "use",
    [
        lambda bound: bound.bound,
        lambda bound: bound.errors(X),
        lambda bound: trace(lambda x: bound(x), pcp.spec(X.shape, "f32")),
        lambda bound: pcp.AutoDiffPlan(bound),
        lambda bound: bound.profile(X),
        lambda bound: bound.run(np.full_like(X, np.nan), check=True),
    ],
    ids=["bound", "errors", "traced", "gradient", "profile", "check"],
)
def test_what_needs_dropped_arguments_says_so(plan: pcp.Plan, use: Callable[[Any], Any]) -> None:
    words = r"argument weights.a was bound, and only what is computed of it once is kept; .*: use the plan as it was before"
    with pytest.raises(ArgumentDropped, match=words):
        use(plan.bind(WEIGHTS))


def kept_by(plan: pcp.Plan) -> object:
    executable = plan._executable
    assert isinstance(executable, BoundExecutable)
    return executable.kept


def test_plans_that_bind_the_same_arrays_share_what_is_kept(plan: pcp.Plan) -> None:
    (placed,) = plan.place(WEIGHTS, X)[:1]
    other = pcp.plan(PROGRAM, "cpu:0", path=PATH)
    first, second, third = (each.bind(placed) for each in (plan, plan, other))
    kept = [kept_by(each) for each in (first, second, third)]
    assert kept[0] is kept[1] is kept[2]
    assert kept_by(plan.bind(plan.place(OTHERS, X)[0])) is not kept[0]


def test_arrays_at_an_old_address_are_no_old_arrays(plan: pcp.Plan) -> None:
    for shift in range(6):  # each has the memory of the one before, as soon as that is gone
        weights = {name: array + shift for name, array in WEIGHTS.items()}
        bound = plan.bind(weights)
        np.testing.assert_allclose(bound(X), expected(weights), rtol=1e-3, atol=1e-2)


def test_state_behind_bound_arguments_is_donated() -> None:
    def step(weights: Any, state: Any, x: Any) -> Any:
        return state + x @ pcp.tanh(weights), x.sum()

    state = pcp.spec((2, 16), "f32", "state")
    program = trace(step, pcp.spec((16, 16), "f32"), state, pcp.spec((2, 16), "f32"))
    path = Path.plain(program).having(BOUND.name, [BOUND.move(1)])
    bound = pcp.plan(program, path=path).bind(WEIGHTS["a"])
    (held, _) = bound.place(X, X)
    made, _ = bound.run(held, X)
    np.testing.assert_allclose(made, X + X @ np.tanh(WEIGHTS["a"]), rtol=1e-4, atol=1e-4)
    if any(entry.alias is not None for entry in program.arguments):
        with pytest.raises(pcp.PCPError, match="donated to an earlier call"):
            bound.run(held, X)


def test_arguments_go_by_their_names_as_well() -> None:
    weights = {"a": WEIGHTS["a"], "b": WEIGHTS["b"]}
    plan = pcp.plan(TWO, "arena:cpu")
    expected = np.asarray(plan.run(*weights.values(), X))
    for call in (
        lambda: plan.run(x=X, **weights),
        lambda: plan.run(WEIGHTS["a"], x=X, b=WEIGHTS["b"]),
        lambda: plan(b=WEIGHTS["b"], x=X, a=WEIGHTS["a"]),
        lambda: plan.bind(**weights).run(x=X),
        lambda: plan.run(x=X, **weights, check=True),
        lambda: trace(lambda x: plan(x=x, **weights), pcp.spec((2, 16), "f32"))(X),
    ):
        np.testing.assert_allclose(np.asarray(call()), expected, rtol=1e-4, atol=1e-4)
    takes = "the plan takes a, b, x"
    for wrong, words in (
        (lambda: plan.run(x=X), f"a, b was not given; {takes}"),
        (
            lambda: plan.run(WEIGHTS["a"], a=X, b=X, x=X),
            f"argument 'a' was given by its name twice, .*; {takes}",
        ),
        (
            lambda: plan.run(**weights, xx=X),
            rf"argument 'xx' was given by its name \(did you mean 'x'\?\); {takes}, by place",
        ),
        (
            lambda: plan.bind(**weights).run(a=X),
            "'a' was given by its name, where it is bound already; the plan takes x",
        ),
    ):
        with pytest.raises(ArgumentNameMismatch, match=words):
            wrong()


TWO = trace(lambda a, b, x: x @ (a @ b), *(pcp.spec((16, 16), "f32") for _ in "ab"), pcp.spec((2, 16), "f32"))


@pytest.mark.parametrize(
    ("bind", "words"),
    [
        (lambda p: p.bind(c=X), "argument 'c' was given to bind; the plan takes a, b, x: give one of these"),
        (lambda p: p.bind(b=WEIGHTS["b"]), "argument 'b' was given to bind, and a was not, which stands before it; .*: give a"),
        (lambda p: p.bind(WEIGHTS["a"], a=WEIGHTS["a"]), "argument 'a' was given to bind twice, by its place and by its name"),
        (lambda p: p.bind(WEIGHTS["a"]), "computes something once of arguments a to b, and b was not given to bind; bind all"),
        (
            lambda p: p.bind(WEIGHTS["a"], WEIGHTS["b"]).bind(a=WEIGHTS["a"]),
            "argument 'a' was given to bind, where it is bound already; bind it in the plan as it was before",
        ),
        (lambda p: p.bind(*(3 * [WEIGHTS["a"]]), X), "4 arguments were given to bind; the plan takes 3: a, b, x"),
        (lambda p: p.bind(WEIGHTS["a"][:3], WEIGHTS["b"]), r"argument a has shape \(3, 16\); the plan expects f32\[16,16\]"),
        (lambda p: p.bind(a=WEIGHTS["a"].astype("f8"), b=WEIGHTS["b"]), "argument a has element type float64; the plan"),
        (lambda p: p.bind({"a": WEIGHTS["a"]}, WEIGHTS["b"]), "argument a"),
    ],
)  # fmt: skip
def test_what_cannot_be_bound(bind: Callable[[pcp.Plan], Any], words: str) -> None:
    plan = pcp.plan(TWO, path=Path.plain(TWO).having(BOUND.name, [BOUND.move(2)]))
    with pytest.raises(pcp.PCPError, match=words):
        bind(plan)
    together = plan.bind(b=WEIGHTS["b"], a=WEIGHTS["a"])
    np.testing.assert_allclose(together(X), X @ (WEIGHTS["a"] @ WEIGHTS["b"]), rtol=1e-4, atol=1e-3)


STEP = trace(
    lambda s, w, x: (s + w, x), pcp.spec((2,), "f32", "state"), pcp.spec((2,), "f32"), pcp.spec((2,), "f32")
)


@pytest.mark.parametrize(
    ("program", "binds", "words"),
    [
        (TWO, ("c",), "binds names 'c'; the program takes a, b, x: give names of these"),
        (TWO, ("b",), "binds is b, and a stands before; bind takes the first arguments: name a, too, or trace"),
        (TWO, "a", r"binds is 'a'; expected a tuple of names of arguments, as \('weights',\)"),
        (TWO, (1,), r"binds is \(1,\); expected a tuple"),
        (STEP, ("s",), "binds names s, which is state: every call consumes it, so it cannot be bound: leave it out"),
        (PROGRAM, ("weights.a",), "binds names 'weights.a'; the program takes weights, x"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_to_be_bound(program: Program, binds: Any, words: str) -> None:
    with pytest.raises(InvalidBinds, match=words):
        pcp.plan(program, binds=binds)


def test_names_stand_for_all_that_is_nested_in_them() -> None:
    assert bound_count(PROGRAM, ("weights",)) == 3
    assert bound_count(TWO, ("b", "a")) == bound_count(TWO, ("a", "b", "a")) == 2
    assert bound_count(TWO, ()) == 0


def test_binds_beside_memory() -> None:
    with pytest.raises(pcp.PCPError, match=r"binds was given beside memory; .*: leave one of them out"):
        pcp.plan(PROGRAM, memory="1GiB", binds=("weights",))


def test_without_a_tolerance_nothing_changes() -> None:
    assert pcp.plan(PROGRAM, binds=("weights",)).path.is_plain


@pytest.mark.parametrize(
    ("program", "count", "words"),
    [
        (TWO, 4, "the path has 4 arguments bound, and the program takes 3: plan again"),
        (STEP, 1, "the path has argument s bound, which is state: every call consumes it: plan again"),
    ],
)
def test_paths_that_bind_what_cannot_be(program: Program, count: int, words: str) -> None:
    path = Path.plain(program).having(BOUND.name, [BOUND.move(count)])
    with pytest.raises(PathMismatch, match=words):
        pcp.plan(program, path=path)


@pytest.mark.cpu  # its path is of native kernels
def test_a_path_is_saved_and_followed_again(plan: pcp.Plan, tmp_path: File) -> None:
    plan.path.save(tmp_path / "path.json")
    again = pcp.plan(PROGRAM, path=pcp.Path.load(tmp_path / "path.json"))
    assert isinstance(again._executable, StagedExecutable)
    assert (np.asarray(again.bind(WEIGHTS)(X)) == np.asarray(plan(WEIGHTS, X))).all()
    with pytest.raises(
        NotAPath, match="has operations run elsewhere and computes something when arguments are bound"
    ):
        Path.from_json(plan.path.to_json()[:-1] + ', "placement": [["' + "1" * 64 + '", "arena:cpu:0"]]}')


def test_the_arena_binds_too() -> None:
    path = replace(PATH, backend="arena")
    plan = pcp.plan(PROGRAM, "arena:cpu", path=path)
    bound = plan.bind(WEIGHTS)
    assert isinstance(bound._executable, BoundExecutable)
    others = plan.bind(OTHERS)
    np.testing.assert_allclose(np.asarray(bound(X)), expected(WEIGHTS), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.asarray(others(X)), expected(OTHERS), rtol=1e-4, atol=1e-3)


def test_taps_show_what_is_tapped() -> None:
    shown: list[str] = []
    program = trace(lambda w, x: x @ pcp.tap("w", pcp.tanh(w)), WEIGHTS["a"], pcp.spec(X.shape, "f32"))
    path = Path.plain(program).having(BOUND.name, [BOUND.move(1)])
    bound = pcp.plan(program, path=path, taps=lambda label, _: shown.append(label)).bind(WEIGHTS["a"])
    bound(X)
    bound(X)
    assert shown == ["w", "w"]


def test_what_measures_binds_once_and_changes_only_other_arguments() -> None:
    target = Target.of("cpu:0")
    request = Request(PROGRAM, PROGRAM, "bound", bound=PATH.bound, target=target)
    executable = compiled(request).executable
    assert isinstance(executable, Rebinding)
    flat = [
        target.place(leaf, entry.spec)
        for leaf, entry in zip([*WEIGHTS.values(), X], PROGRAM.arguments, strict=True)
    ]
    variations = Variations(PROGRAM.arguments, flat, target, request.fixed)
    for _ in range(3):
        given = variations.next()
        assert all(a is b for a, b in zip(given[:3], flat[:3], strict=True))
        np.testing.assert_allclose(
            executable.run(given)[0], expected(WEIGHTS, np.asarray(given[3])), rtol=1e-4, atol=1e-3
        )
        bound = executable._bound
    assert executable._bound is bound
    other = [target.place(np.asarray(flat[0]) + 1, PROGRAM.arguments[0].spec), *flat[1:]]
    np.testing.assert_allclose(
        executable.run(other)[0], expected(WEIGHTS | {"a": WEIGHTS["a"] + 1}), rtol=1e-4, atol=1e-3
    )


def test_what_splits_nothing_off_is_compiled_as_a_whole() -> None:
    program = trace(lambda w, x: x @ w, WEIGHTS["a"], pcp.spec(X.shape, "f32"))
    assert not isinstance(compiled_in_places(program, Target.of("cpu:0"), None, (0,)), StagedExecutable)
    path = Path.plain(program).having(BOUND.name, [BOUND.move(1)])
    bound = pcp.plan(program, path=path).bind(WEIGHTS["a"])
    assert (np.asarray(bound.bound[0]) == WEIGHTS["a"]).all()


def test_plans_of_all_sizes_share_what_is_kept() -> None:
    program = trace(forward, WEIGHTS, pcp.spec(("rows", 16), "f32"))
    plan: Any = pcp.plan(program, "cpu:0", binds=("weights",))
    at_two = program.at(rows=2)
    path = Path.plain(at_two).having(BOUND.name, [BOUND.move(3)])
    moved = transferred(path, at_two, program.at(rows=5), "cpu")
    assert moved is not None
    assert moved.bound == (0, 1, 2)
    plan._make = lambda each, **_: pcp.plan(
        each, "cpu:0", path=Path.plain(each).having(BOUND.name, path.moves)
    )
    bound = plan.bind(weights=WEIGHTS)
    for rows in (2, 5):
        np.testing.assert_allclose(
            bound.run(X[:1].repeat(rows, 0)), expected(WEIGHTS, X[:1].repeat(rows, 0)), rtol=1e-3
        )
    assert kept_by(bound.at(rows=2)) is kept_by(bound.at(rows=5))
    with pytest.raises(
        CannotBind, match="argument 'w' was given to bind; the plan takes weights, x: give one of these"
    ):
        plan.bind(w=WEIGHTS)


@pytest.mark.parametrize(("role", "left"), [("weight", 1), ("state", 2)])
def test_an_imported_module_binds_its_weights(role: str, left: int) -> None:
    def computed(weights: Any, buffers: Any, x: Any) -> Any:
        made = x @ weights["a"] + buffers["shift"]
        return ({"shift": buffers["shift"] + 1}, made) if role == "state" else made

    buffers = {"shift": np.ones(16, np.float32)}
    program = trace(
        computed, specs_of({"a": WEIGHTS["a"]}), specs_of(buffers, role), pcp.spec((2, 16), "f32")
    )
    plan = Imported(program, {"a": WEIGHTS["a"]}, buffers).plan("cpu:0")
    assert len(plan.inputs) == left
    found = plan(X) if role == "weight" else plan(buffers, X)[1]
    np.testing.assert_allclose(found, X @ WEIGHTS["a"] + 1, rtol=1e-4, atol=1e-4)
    bare = trace(lambda weights, x: x @ weights["a"], {"a": WEIGHTS["a"]}, pcp.spec((2, 16), "f32"))
    assert len(Imported(bare, {"a": WEIGHTS["a"]}, {}).plan().inputs) == 1


def waves(w: Any, x: Any) -> Any:
    return pcp.sin(pcp.sin(x @ (w @ w)) + 1.0)


WAVES = trace(waves, *[pcp.spec((8, 8), "f32")] * 2)


@pytest.mark.parametrize(("takes", "is_kept"), [(0.5, True), (1.2, False), (1.0, False)])
@pytest.mark.parametrize("error", [1e-7, 1.0])
def test_it_is_kept_where_it_was_measured_to_be_faster(
    takes: float, is_kept: bool, error: float, bench: FakeBench, file: File
) -> None:
    bench.bound = takes
    bench.errors["logistic"] = bench.errors["tanh"] = (
        error  # of kernels; whether any is chosen makes no difference
    )
    plan = pcp.plan(WAVES, "cpu:0", 1e-2, database=file, binds=("w",))
    assert plan.path.bound == ((0,) if is_kept else ())
    asked = [request for request in bench.wholes if request.bound]
    assert asked
    assert all(request.bound == (0,) for request in asked)
    words = r"note +bound, with what that decides computed once, the whole takes \d.\d\d of the plain time; without, \d.\d\d"
    assert re.search(words, str(plan))
    if is_kept:
        bound = plan.bind(w=np.eye(8, dtype=np.float32))
        assert "bound once  256 bytes from 1 values" in str(bound)


def test_nothing_is_measured_bound_that_nobody_binds(bench: FakeBench, file: File) -> None:
    bench.bound = 0.5
    assert not pcp.plan(WAVES, "cpu:0", 1e-2, database=file).path.bound
    assert not any(request.bound for request in bench.requests)
    bound = pcp.plan(WAVES, "cpu:0", 1e-2, database=file, binds=("w",))
    assert bound.path.bound == (0,)
    again = pcp.plan(WAVES, "cpu:0", 1e-2, database=file)  # which knows now what was measured bound
    assert not again.path.bound
    assert pcp.plan(WAVES, "cpu:0", 1e-2, database=file, binds=("w",)).path == bound.path


def test_a_path_that_splits_nothing_off_does_not_say_so(bench: FakeBench, file: File) -> None:
    bench.bound = 0.5
    program = trace(lambda w, x: pcp.sin(pcp.sin(x @ w)), *[pcp.spec((8, 8), "f32")] * 2)
    plan = pcp.plan(program, "cpu:0", 1e-2, database=file, binds=("w",))
    assert not plan.path.bound
    assert "computed once" not in str(plan)


def test_bound_operands_of_sites() -> None:
    program = trace(
        lambda w, x: (x @ pcp.tanh(w), w @ x, pcp.tanh(w) @ w, x @ x), *[pcp.spec((32, 32), "f32")] * 2
    )
    sites = [site for site in sites_of(program, "cpu") if site.family == "product"]
    found = decided_operands(program, sites, 1)
    if any("product.native" in site.kernels for site in sites):
        assert [found.get(site.key) for site in sites] == [(1,), (0,), None, None]
    classes = classes_of(sites, decided=found)
    assert sorted(len(each.sites) for each in classes) == ([1, 1, 1, 1] if found else [1, 3])
    assert decided_operands(program, sites, 0) == {}


def test_xla_computes_equal_values_of_a_step_once() -> None:
    """So a training step, whose weights change in every call, needs no bind stage of its own."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return ((x @ pcp.tanh(w)) ** 2).sum() + ((y @ pcp.tanh(w)) ** 2).sum()

    specs = [pcp.spec((rows, 64), "f32") for rows in (64, 8, 4)]
    forward = trace(loss, *specs)
    step = pcp.training_step(forward, pcp.optimizers.sgd(1e-2))
    assert sum(op.name == "tanh" for op in operations_of(forward)) == 2
    assert compiled_text(forward).count(" tanh(") == 1
    assert compiled_text(step).count(" tanh(") == 1


def test_xla_copies_equal_operands_of_kernels_once() -> None:
    program = trace(lambda w, x, y: (x @ w, y @ w), *[pcp.spec((rows, 64), "f32") for rows in (64, 8, 4)])
    chosen = {site.key: kernel_named("product.native") for site in sites_of(program, "cpu")}
    made = compiled_text(with_kept_panels(apply_kernels(program, chosen), (0,)))
    assert made.count('custom_call_target="pcp.keep_product_f32') == 1
    assert made.count('custom_call_target="pcp.kept_product_f32') == 2


def compiled_text(program: Program) -> str:
    executable: Any = pcp.plan(program, "cpu:0", cache=False)._executable
    return str(executable._loaded.hlo_modules()[0].to_string())


def test_what_is_computed_once_is_no_part_of_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the first call of some arguments, nor of one that comes back to them."""
    target = Target.of("cpu:0")
    runnable = compiled(Request(PROGRAM, PROGRAM, "bound", bound=PATH.bound, target=target))
    now, runs = [0.0], [0]
    real = StagedExecutable.bind

    def slowly(staged: StagedExecutable, bound: Any) -> BoundExecutable:
        now[0] += 100.0
        runs[0] += 1
        return real(staged, bound)

    monkeypatch.setattr(StagedExecutable, "bind", slowly)
    monkeypatch.setattr("pcp.planning.measuring.timing.time.perf_counter", lambda: now[0])
    sets = [
        [
            target.place(leaf, entry.spec)
            for leaf, entry in zip([*weights.values(), X], PROGRAM.arguments, strict=True)
        ]
        for weights in (WEIGHTS, OTHERS)
    ]
    for flat, weights in zip([*sets, sets[0]], [WEIGHTS, OTHERS, WEIGHTS], strict=True):
        results, took = timed(runnable, flat, target)
        assert took == 0.0
        np.testing.assert_allclose(results[0], expected(weights), rtol=1e-4, atol=1e-3)
    assert runs[0] == 3


@pytest.mark.parametrize("tolerance", [1e-3, 0.0])
def test_a_child_process_measures_and_judges_what_is_bound(child: Bench, tolerance: float) -> None:
    request = Request(
        PROGRAM,
        PATH.applied(PROGRAM),
        PATH.digest,
        widened(PROGRAM) if tolerance else None,
        tolerance=tolerance or None,
        bound=PATH.bound,
        timing_seconds=0.2,
    )
    row = child.measure(request)
    assert row.failure is None
    assert row.seconds
    assert (row.error is not None and row.error < 1e-5) is bool(tolerance)
