"""Records of operations: complete for every operation of StableHLO and CHLO, and what is derived from them."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest

import pcp
from pcp.autodiff import RULES
from pcp.batching import BATCHING
from pcp.distributed import verification
from pcp.importers import imported_module
from pcp.ir import digest
from pcp.ir.bindings import operation_names
from pcp.ops.derivative import Expansion
from pcp.ops.record import (
    MISSING,
    NEEDED,
    RECORDS,
    Cost,
    Kind,
    Record,
    Supplied,
    declare,
    full_name,
    is_shipped,
    missing_fields,
)
from pcp.tensor import OPERATIONS

NEWEST = (0, 11, 2)
"""The last jaxlib whose operations the records were compared with."""


def test_every_operation_of_the_specification_has_a_record() -> None:
    without = operation_names() - set(RECORDS)
    if tuple(int(part) for part in version("jaxlib").split(".")[:3]) <= NEWEST:
        assert not without, f"declare {sorted(without)} in a file of pcp.ops"


def test_no_record_lacks_what_its_kind_needs() -> None:
    lacking = {name: missing_fields(record) for name, record in RECORDS.items() if missing_fields(record)}
    assert not lacking


@pytest.mark.parametrize("field", NEEDED[Kind.elementwise])
def test_a_record_that_lacks_a_field_is_found(field: str) -> None:
    fields = {"cost": Cost.arithmetic, "rounds": False, "derivative": None, "batching": None}
    whole = Record(name="stablehlo.mine", kind=Kind.elementwise, **fields)
    assert missing_fields(whole) == []
    for value in (MISSING, Supplied("pcp.autodiff.rules.mine")):
        part = Record(name="stablehlo.mine", kind=Kind.elementwise, **fields | {field: value})
        assert missing_fields(part) == [field]


def test_what_holds_for_a_kind_is_said_once_and_a_record_may_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pcp.ops.record.RECORDS", {})
    mine = declare("mine", Kind.communication, cost=Cost.work)
    assert (mine.cost, mine.rounds, mine.has_effect) == (Cost.work, False, True)
    assert missing_fields(mine) == ["derivative", "batching"]


def test_lists_that_cannot_read_records_agree_with_them() -> None:
    """Those of `ir`, which stands below `ops`, and those that give each operation a reason of its own."""
    outside = {name for name, record in RECORDS.items() if record.kind is Kind.outside}
    assert set(digest._OUTSIDE) == outside
    assert set(digest._DRAWS) == {
        name for name, record in RECORDS.items() if record.kind is Kind.creation and record.has_effect
    }
    assert outside <= set(verification.REFUSED_OPERATIONS)
    assert outside <= set(imported_module._REFUSED)


def functions_of(rule: Any) -> list[Callable[..., Any]]:
    """The functions that a rule consists of."""
    if isinstance(rule, Expansion):
        return [rule.results]
    rows = rule if isinstance(rule, tuple) else (rule,)
    return [row for row in rows if callable(row)]


def far_from_its_operation(record: Record) -> list[str]:
    """The fields of a record whose rule stands outside of `pcp.ops`, although it needs nothing but operations."""
    with_an_engine = record.kind is Kind.control or record.name == "stablehlo.composite"
    return [
        field
        for field in ("derivative", "tangents", "batching")
        for function in functions_of(getattr(record, field))
        if not with_an_engine and not function.__module__.startswith("pcp.ops.")
    ]


def test_rules_stand_beside_their_operations() -> None:
    far = {name: far_from_its_operation(record) for name, record in RECORDS.items()}
    assert not {name: fields for name, fields in far.items() if fields}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.control])
def test_a_rule_that_stands_elsewhere_is_found(kind: Kind) -> None:
    def rule(*_: Any) -> Any:
        """A rule of this file, which is none of `pcp.ops`."""

    for derivative in (rule, (None, rule), Expansion(rule)):
        record = Record(name="stablehlo.mine", kind=kind, derivative=derivative, batching=rule)
        assert far_from_its_operation(record) == ["derivative", "batching"]
    assert far_from_its_operation(Record(name="stablehlo.mine", kind=kind, tangents=rule)) == ["tangents"]


def runs_sample_by_sample(record: Record) -> bool:
    """Whether an operation on whole arrays has neither a batched form nor others that it is written out as."""
    is_of_arrays = record.kind in (Kind.movement, Kind.reduction, Kind.product, Kind.solver)
    return is_of_arrays and not callable(record.batching) and not isinstance(record.derivative, Expansion)


def test_operations_on_whole_arrays_have_a_batched_form() -> None:
    assert [name for name, record in RECORDS.items() if runs_sample_by_sample(record)] == []
    for name in ("gather", "scatter", "dynamic_slice", "reduce", "map", "sort", "transpose", "dot_general"):
        record = RECORDS[full_name(name)]
        assert missing_fields(replace(record, batching=MISSING)) == ["batching"]
        assert runs_sample_by_sample(replace(record, batching=None, derivative=None))


def test_the_rules_in_force_are_those_of_the_records() -> None:
    assert all(is_shipped(name) for name in RECORDS)
    assert [
        name for name, record in RECORDS.items() if callable(record.batching) and name not in BATCHING
    ] == []
    differentiated = {name for name in RULES if name.startswith(("stablehlo.", "chlo."))}
    assert differentiated <= set(RECORDS)


def test_functions_that_a_record_names_exist() -> None:
    named = {name for record in RECORDS.values() for name in record.functions}
    assert named <= set(OPERATIONS)
    assert all(getattr(pcp.ops, name) is OPERATIONS[name] for name in named)
