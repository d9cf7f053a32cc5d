"""Records of operations: complete for every operation of StableHLO and CHLO, and what is derived from them."""

from importlib.metadata import version

import pytest

import pcp
from pcp.autodiff import RULES
from pcp.batching import BATCHING
from pcp.ir.bindings import operation_names
from pcp.ops.record import (
    MISSING,
    NEEDED,
    RECORDS,
    Cost,
    Kind,
    Record,
    Supplied,
    declare,
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
