"""Every record of a composite says what programs, gradients and batches do with it, and each has rows that show it."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from tests.composites.rows import ROWS, Row

import pcp
from pcp.autodiff.rematerialisation.apart import with_gradients_apart
from pcp.ir import Program
from pcp.ir.bindings import context, ir
from pcp.ir.composites import (
    MalformedComposite,
    composite_attributes,
    composite_name,
    known_attributes,
    records,
)
from pcp.ir.composites.records import COMPOSITES, Axes, CompositeRecord, Gradient, Samples
from pcp.ir.toolkit.walking import every_operation
from pcp.ops.derivative import RULES
from pcp.rewrite.raising import raised

SOURCE = Path(pcp.__file__).parent
RECORDS = pytest.mark.parametrize("record", COMPOSITES.values(), ids=COMPOSITES)
CASES = pytest.mark.parametrize(
    ("record", "row"),
    [
        pytest.param(COMPOSITES[name], row, id=f"{name} {place}")
        for name, rows in ROWS.items()
        for place, row in enumerate(rows)
    ],
)


def named_in(program: Program) -> list[str]:
    """The names of a program's composites, but for those inside of others."""
    main = program.text.partition("func.func private")[0]
    return re.findall(r'stablehlo.composite "([^"]*)"', main)


def holding(row: Row, record: CompositeRecord) -> Program:
    """A row's program, in which its composite is written, or found."""
    return row.written if record.name in named_in(row.written) else raised(row.plain)


def the_one(module: ir.Module, record: CompositeRecord) -> ir.Operation:
    """The composite of a module."""
    (op,) = (op for op in every_operation(module.operation) if composite_name(op) == record.name)
    return op


def unshown() -> list[str]:
    """What records say, and no row shows."""
    found = []
    for name, record in COMPOSITES.items():
        shown: set[str] = set()
        for row in ROWS.get(name, ()):
            module = holding(row, record).module()
            shown |= {*composite_attributes(the_one(module, record)), *row.further}
        found += [f"{name}: {key}" for key in {*record.kinds, *record.further} - shown]
        found += [] if name in ROWS else [f"{name}: a row"]
    return sorted(found)


@pytest.mark.cpu
def test_every_record_has_rows_that_show_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ROWS.keys() == COMPOSITES.keys()
    assert unshown() == []
    monkeypatch.setitem(COMPOSITES, "pcp.new", CompositeRecord(name="pcp.new", operands=("x",)))
    monkeypatch.setitem(ROWS, "pcp.attention", ROWS["pcp.attention"][:3])
    assert unshown() == [
        *(f"pcp.attention: {key}" for key in ("bias", "key_lengths", "query_lengths", "safe")),
        "pcp.new: a row",
    ]


@CASES
def test_programs_hold_it_as_its_record_says(record: CompositeRecord, row: Row) -> None:
    is_written = record.form != "" and (record.name, row.further) != ("pcp.attention", ("bias",))
    assert named_in(row.written).count(record.name) == is_written
    assert named_in(raised(row.plain)).count(record.name) == bool(record.pattern)
    module = holding(row, record).module()
    op = the_one(module, record)
    assert len(op.operands) == len(record.operands) + len(row.further)
    assert set(row.further) <= set(record.further)
    assert record.attributes.keys() <= known_attributes(op).keys() <= record.kinds.keys()


@CASES
def test_each_attribute_is_asked_for(record: CompositeRecord, row: Row) -> None:
    module = holding(row, record).module()
    op = the_one(module, record)
    right, given = ir.DictAttr(op.attributes["composite_attributes"]), composite_attributes(op)
    entries = {right[i].name: right[i].attr for i in range(len(right))}
    with context():
        wrong = {
            kind: ir.Attribute.parse(text)
            for kind, text in (("text", '"x"'), ("flag", "unit"), ("axis", "7"))
        }
        names = ir.Attribute.parse("array<i64: 0, 1, 2, 3, 4, 5>")

        def refused(key: str, instead: ir.Attribute | None, words: str) -> None:
            changed = {name: each for name, each in entries.items() if name != key}
            changed |= {} if instead is None else {key: instead}
            op.attributes["composite_attributes"] = ir.DictAttr.get(changed)
            with pytest.raises(
                MalformedComposite, match=f"the composite {record.name!r} has .*{words}; write the attr"
            ):
                known_attributes(op)

        for key, kind in record.kinds.items():
            expected = kind.type if isinstance(kind, Axes) else kind
            words = f"expected a value of type {expected.__name__}"
            if key in record.attributes:
                refused(key, None, f"no {key}; {words}")
            if key in given:
                refused(key, wrong["flag" if expected is str else "text"], f"{key} = .*; {words}")
            if kind is Axes.axis:
                refused(
                    key,
                    wrong["axis"],
                    f"{key} = 7; expected an axis of {len(row.written.arguments[0].spec.shape)}, counted from 0",
                )
            if kind is Axes.names and key in given and key != "result":
                refused(key, names, rf"{key} = \(0, 1, 2, 3, 4, 5\); expected \d axes, as the operand has")


@CASES
def test_its_gradient_is_what_its_record_says(record: CompositeRecord, row: Row) -> None:
    gradient = pcp.vjp(holding(row, record))
    assert (record.gradient_name in named_in(gradient)) is (record.gradient is Gradient.whole)
    assert (f"composite.{record.name}" in RULES) is (record.gradient is not Gradient.written_out)
    assert (with_gradients_apart(gradient) is not gradient) is record.is_large_inside


@CASES
def test_it_is_for_many_samples_what_its_record_says(record: CompositeRecord, row: Row) -> None:
    program = holding(row, record)
    keeps = record.samples is Samples.further_too or (
        record.samples is Samples.further_alike and not row.further
    )
    name = record.name if keeps else f"{record.name}.batched"
    batched = pcp.vmap(program, size=2)
    assert named_in(batched) == [name]
    if record.samples is not Samples.renamed:
        count = len(record.operands)
        alike = pcp.vmap(program, [0] * count + [None] * len(row.further), size=2)
        assert named_in(alike) == [record.name]
        module = alike.module()
        known_attributes(the_one(module, record))


@RECORDS
def test_its_name_stands_in_its_record_alone(record: CompositeRecord) -> None:
    quoted = re.compile(rf'"{re.escape(record.name)}(\.vjp)?"')
    files = [path for path in SOURCE.rglob("*.py") if quoted.search(path.read_text(encoding="utf-8"))]
    assert files == [Path(records.__file__)]
    (constant,) = (name for name, value in vars(records).items() if value is record)
    for module in filter(None, (record.form, record.pattern)):
        assert re.search(rf"\b{constant}\b", inspect.getsource(importlib.import_module(module)))
    assert record.form or record.pattern
