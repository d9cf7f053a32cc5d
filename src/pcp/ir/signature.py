"""The signature of a program: names, roles, aliases and nesting, as attributes of its `main`."""

import enum
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcp.errors import PCPError, nearest
from pcp.ir.bindings import InvalidProgram, context, ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.functions import function_type
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import LEAF, Tree
from pcp.ir.types import TensorSpec


class UnknownRole(PCPError, ValueError):
    """A name that stands for no role of an argument."""


class Role(enum.StrEnum):
    """What an argument is to its program: a `weight` is bound once, a `state` is donated and returned, an `input` changes."""

    weight = "weight"
    state = "state"
    input = "input"

    @classmethod
    def _missing_(cls, value: object) -> "Role":
        """Raises UnknownRole."""
        near = nearest(value, list(cls))
        raise UnknownRole(
            f"{value!r} is not a role{near}; expected 'weight' (bound once), 'state' (donated and returned) or 'input'"
        )


NODES = "nodes"
"""Ends the names of the attributes of `main` that mean structures which make nodes; they do not leave the process."""

_WORDS: dict[tuple[Any, ...], str] = {}
_STRUCTURES: dict[str, Tree] = {}

PARAMETERS = "params"
"""The group of what a training step updates."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One array that a program takes.

    Arguments:
        name: dotted.
        spec: shape and element type.
        role: what it is to the program.
        alias: index of the result that may reuse its memory: its successor.
        kept: the factor with which its value stands in its successor whatever the rest of the program computes. How wrong the
            successor is is judged by what is added to that: 1 for a parameter, to which an update is added.
        group: of state of a training step, what it is a part of, as `params` or `optimizer.first`; empty for all else. The
            gradients or updates of a group have a common scale.
    """

    name: str
    spec: TensorSpec
    role: Role
    alias: int | None = None
    kept: float = 1.0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One array that a program returns."""

    name: str
    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class Signature:
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    argument_tree: Tree
    result_tree: Tree


def describe_signature(
    main: ir.Operation,
    arguments: Sequence[Argument],
    results: Sequence[Result],
    argument_tree: Tree,
    result_tree: Tree,
) -> None:
    """Write names, roles, aliases and nesting into the attributes of `main`, in place."""
    with context(), ir.Location.unknown():
        text, number = ir.StringAttr.get, ir.IntegerAttr.get
        i32, f64 = ir.IntegerType.get_signless(32), ir.F64Type.get()
        facts: list[dict[str, ir.Attribute]] = []
        for entry in arguments:
            facts.append({"pcp.name": text(entry.name), "pcp.role": text(entry.role)})
            if entry.alias is not None:
                facts[-1]["tf.aliasing_output"] = number(i32, entry.alias)
            if entry.kept != 1.0:
                facts[-1]["pcp.kept"] = ir.FloatAttr.get(f64, entry.kept)
            if entry.group:
                facts[-1]["pcp.group"] = text(entry.group)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(each) for each in facts])
        main.attributes["res_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({"pcp.name": text(entry.name)}) for entry in results]
        )
        main.attributes["pcp.arguments"] = text(argument_tree.to_json())
        main.attributes["pcp.results"] = text(result_tree.to_json())
        for name, tree in (("pcp.arguments", argument_tree), ("pcp.results", result_tree)):
            beside = {"order": tree.orders(), NODES: _word_of(tree) if tree.makes_nodes else ""}
            for part, said in beside.items():
                if said:
                    main.attributes[f"{name}.{part}"] = text(said)
                elif f"{name}.{part}" in main.attributes:
                    del main.attributes[f"{name}.{part}"]


def signature_of(main: ir.Operation) -> Signature:
    type_ = function_type(main)
    argument_facts = _facts(main, "arg_attrs", len(type_.inputs))
    result_facts = _facts(main, "res_attrs", len(type_.results))
    arguments = tuple(
        Argument(
            str(facts.get("pcp.name", i)),
            spec_of(t),
            _role(facts, i),
            _alias(facts),
            _kept(facts, i),
            str(facts.get("pcp.group", "")),
        )
        for i, (t, facts) in enumerate(zip(type_.inputs, argument_facts, strict=True))
    )
    results = tuple(
        Result(str(facts.get("pcp.name", i)), spec_of(t))
        for i, (t, facts) in enumerate(zip(type_.results, result_facts, strict=True))
    )
    argument_tree = _tree(main, "pcp.arguments") or Tree("tuple", (), (LEAF,) * len(arguments))
    result_tree = _tree(main, "pcp.results") or (
        LEAF if len(results) == 1 else Tree("tuple", (), (LEAF,) * len(results))
    )
    if (argument_tree.leaf_count, result_tree.leaf_count) != (len(arguments), len(results)):
        raise InvalidProgram("the nesting written in the program does not fit its arguments and results")
    _check_aliases(arguments, results)
    return Signature(arguments, results, argument_tree, result_tree)


def _facts(main: ir.Operation, name: str, count: int) -> list[dict[str, Any]]:
    if name not in main.attributes:
        return [{}] * count
    return [
        {entries[i].name: getattr(entries[i].attr, "value", None) for i in range(len(entries))}
        for entries in map(ir.DictAttr, ir.ArrayAttr(main.attributes[name]))
    ]


def _role(facts: dict[str, Any], index: int) -> Role:
    role = facts.get("pcp.role", "input")
    if role not in Role.__members__:
        raise InvalidProgram(f"argument {index} has the role {role!r}; expected one of {', '.join(Role)}")
    return Role(role)


def _kept(facts: dict[str, Any], index: int) -> float:
    factor = facts.get("pcp.kept", 1.0)
    if not isinstance(factor, float) or not math.isfinite(factor):
        raise InvalidProgram(f"argument {index} is kept with the factor {factor!r}; expected a finite number")
    return factor


def _check_aliases(arguments: Sequence[Argument], results: Sequence[Result]) -> None:
    donors: dict[int, str] = {}
    for entry in arguments:
        if entry.alias is None:
            continue
        if not 0 <= entry.alias < len(results):
            raise InvalidProgram(
                f"argument {entry.name} is donated to result {entry.alias}, but there are {len(results)} results"
            )
        result = results[entry.alias]
        if result.spec != entry.spec:
            raise InvalidProgram(
                f"argument {entry.name} of {entry.spec} is donated to result {entry.alias} of {result.spec}; "
                "only equal types share memory"
            )
        if donors.setdefault(entry.alias, entry.name) != entry.name:
            raise InvalidProgram(
                f"arguments {donors[entry.alias]} and {entry.name} are both donated to result {entry.alias}"
            )


def _alias(facts: dict[str, Any]) -> int | None:
    alias = facts.get("tf.aliasing_output")
    if alias is not None and not isinstance(alias, int):
        raise InvalidProgram(f"an argument is donated to result {alias!r}; expected the number of a result")
    return alias


def _tree(main: ir.Operation, name: str) -> Tree | None:
    if name not in main.attributes:
        return None
    try:
        tree = Tree.from_json(string_of(main.attributes[name]))
        orders, nodes = f"{name}.order", f"{name}.{NODES}"
        if orders in main.attributes:
            tree = tree.with_orders(string_of(main.attributes[orders]))
        return _named_by(string_of(main.attributes[nodes]), tree) if nodes in main.attributes else tree
    except ValueError:
        raise InvalidProgram(f"the attribute {name} of the program is not a valid structure") from None


def _word_of(tree: Tree) -> str:
    """A word for a structure that makes nodes, which means it in this process and nothing in any other.

    Programs carry it from trace to gradient to plan. What has a word is kept as long as the process lives, once for all that
    make the same.
    """
    exact = tree.exact
    if exact not in _WORDS:
        word = secrets.token_hex(8)
        _STRUCTURES[word], _WORDS[exact] = tree, word
    return _WORDS[exact]


def _named_by(word: str, tree: Tree) -> Tree:
    """The structure that a word means; `tree` if it means none here, or one that is nested otherwise."""
    known = _STRUCTURES.get(word, tree)
    return known if known == tree else tree
