"""Where programs are cut, and where they are not; what segments compute is tested where they are run."""

import pytest

import pcp
from pcp.ir.operations import operations_of
from pcp.ops import elementwise as e
from pcp.ops.movement import iota
from pcp.rewrite import simplify
from pcp.rewrite.pieces import Segments
from pcp.rewrite.segments import segments
from pcp.tensor import Tensor
from tests.rewrite.deep_programs import layer, stacked, training_step

pytestmark = pytest.mark.usefixtures("small_is_deep")


def cut(program: pcp.Program) -> Segments:
    found = segments(program)
    assert found is not None
    return found


def test_deeper_programs_have_no_other_segments() -> None:
    few, many = cut(stacked(12)), cut(stacked(48))
    assert set(few.kinds) == set(many.kinds)
    assert len(many.sequence) == 4 * len(few.sequence)


def test_a_step_is_cut_where_layers_gradients_and_updates_repeat() -> None:
    few, many = cut(training_step(6)), cut(training_step(10))
    assert len(many.sequence) >= len(few.sequence) + 3 * 4
    shared = set(few.kinds) & set(many.kinds)
    assert len(shared) >= 8
    lengths = {kind: len(operations_of(kind)) for kind in many.kinds}
    whole = len(operations_of(training_step(10)))
    assert sum(lengths.values()) < whole / 3
    assert sum(lengths[kind] for kind in shared) > 0.6 * sum(lengths.values())


def test_segments_hand_on_what_later_ones_read() -> None:
    found = cut(training_step(6))
    program = training_step(6)
    here = set(range(len(program.arguments)))
    for each in found.sequence:
        assert set(each.takes) <= here
        assert len(each.takes) == len(each.program.arguments)
        assert len(each.makes) == len(each.program.results)
        here |= set(each.makes)
        here -= set(each.ends)
    assert set(found.results) <= here


def test_donated_memory_goes_to_the_segment_that_reads_it_last() -> None:
    program = training_step(6)
    found = cut(program)
    assert found.left == ()
    given = [
        (each.takes[place], each.makes[entry.alias])
        for each in found.sequence
        for place, entry in enumerate(each.program.arguments)
        if entry.alias is not None
    ]
    donated = [place for place, entry in enumerate(program.arguments) if entry.alias is not None]
    heirs = [found.results[alias] for entry in program.arguments if (alias := entry.alias) is not None]
    assert sorted(given) == sorted(zip(donated, heirs, strict=True))


def test_masks_and_numbers_are_not_handed_on() -> None:
    def masked(x: Tensor, w: Tensor) -> Tensor:
        seen = iota((4, 4), 0) >= iota((4, 4), 1)
        return layer(x, w) + e.where(seen, x @ x.T, -1e9) @ x

    program = simplify(stacked(12, apply=masked))  # the mask is computed once in it
    for each in cut(program).sequence[1:]:
        others = [number for number in each.takes if number >= len(program.arguments)]
        assert len(others) == 1  # what one layer hands to the next


def narrowing() -> pcp.Program:
    def run(x: Tensor, weights: list[Tensor]) -> Tensor:
        for w in weights:
            x = layer(x, w)[:, :-1]
        return x

    return pcp.trace(run, pcp.spec((4, 16), "f32"), [pcp.spec((n, n), "f32") for n in range(16, 4, -1)])


@pytest.mark.parametrize(
    "program",
    [stacked(2), stacked(4), narrowing()],
    ids=["few layers", "layers that are one segment", "layers of different sizes"],
)
def test_what_is_not_cut(program: pcp.Program) -> None:
    assert segments(program) is None


@pytest.mark.parametrize(
    ("attributes", "is_cut"),
    [
        ("has_side_effect = false", True),
        ("has_side_effect = true", False),
        ("called_computations = [@helper]", False),
    ],
)
def test_calls_of_code_from_outside(attributes: str, is_cut: bool) -> None:
    text = str(stacked(12).module())
    end = text.index("    return %")
    name = text[end:].split()[1]
    types = "(tensor<4x8xf32>) -> tensor<4x8xf32>"
    call = f"    %called = stablehlo.custom_call @f({name}) {{{attributes}}} : {types}\n"
    helper = f"  func.func private @helper{types.replace('(', '(%x: ', 1)} {{\n    return %x : tensor<4x8xf32>\n  }}\n"
    main = text[:end] + call + text[end:].replace(name, "%called", 1)
    before, brace, after = main.rpartition("}")
    program = pcp.Program.parse(before + helper + brace + after)
    assert (segments(program) is not None) == is_cut


def test_numbers_that_the_device_draws() -> None:
    text = str(stacked(12).module())
    end = text.index("    return %")
    name = text[end:].split()[1]
    scalar, array = "tensor<f32>", "tensor<4x8xf32>"
    drawn = (
        f"    %low = stablehlo.constant dense<0.0> : {scalar}\n    %high = stablehlo.constant dense<1.0> : {scalar}\n"
        "    %shape = stablehlo.constant dense<[4, 8]> : tensor<2xi64>\n"
        "    %drawn = stablehlo.rng %low, %high, %shape, distribution = UNIFORM "
        f": ({scalar}, {scalar}, tensor<2xi64>) -> {array}\n"
        f"    %sum = stablehlo.add {name}, %drawn : {array}\n"
    )
    program = pcp.Program.parse(text[:end] + drawn + text[end:].replace(name, "%sum", 1))
    assert segments(program) is None


def test_little_work_is_not_cut_into_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    program, larger = stacked(12, width=8), stacked(12, width=64)
    monkeypatch.setattr("pcp.rewrite.segments.LEAST_FLOPS", 1e5)
    assert segments(program) is None
    assert segments(program, is_called_often=False) is not None
    assert segments(larger) is not None
