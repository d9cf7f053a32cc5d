"""Facts are those that the repository holds, and the comparison sees what is not."""

from dataclasses import replace
from typing import Any

import pytest

from pcp.planning import conditions
from tests.replay.facts import Facts
from tests.replay.groups import GROUPS, Group
from tests.replay.scenarios import SEARCHES
from tests.replay.stored import COMMAND, FILE, differences, message, read, stored, written

pytestmark = pytest.mark.cpu


def check(group: Group, recorded: dict[str, Facts]) -> None:
    """Compare the facts of one group.

    Raises:
        AssertionError: they differ; the message says in what.
    """
    now = group.facts()
    changes = differences({name: recorded[name] for name in now if name in recorded}, now)
    if changes:
        pytest.fail(message(changes), pytrace=False)


def _cases(kind: str) -> list[str]:
    return [name for name, group in GROUPS.items() if group.kind == kind and not group.needs_egglog]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Facts]:
    return stored()


@pytest.mark.share(5)
@pytest.mark.parametrize("name", [*_cases("rules"), *_cases("models"), *_cases("others")])
def test_programs_are_as_they_were(name: str, recorded: dict[str, Facts]) -> None:
    check(GROUPS[name], recorded)


@pytest.mark.share(5)
@pytest.mark.parametrize("name", _cases("searches"))
def test_searches_ask_and_choose_as_they_did(name: str, recorded: dict[str, Facts]) -> None:
    check(GROUPS[name], recorded)


@pytest.mark.parametrize("name", [name for name, group in GROUPS.items() if group.needs_egglog])
def test_searches_for_equal_programs_do_so_too(name: str, recorded: dict[str, Facts]) -> None:
    pytest.importorskip("egglog", reason="egglog is not installed")
    check(GROUPS[name], recorded)


def test_the_file_holds_these_programs_and_no_others(recorded: dict[str, Facts]) -> None:
    """One that is no more would stay in it unseen: every other test looks at those of its own group."""
    names = [name for group in GROUPS.values() for name, _ in group.programs()]
    assert sorted(recorded) == sorted(names)
    assert FILE.stat().st_size < 350_000


def test_facts_are_read_as_they_were_written() -> None:
    facts = {"b, of": {"z 1": "x: y, z", "a": "1"}, "a": {"digest": "d"}}
    text = written(facts)
    assert text.splitlines() == ["a", "  digest: d", "b, of", "  z 1: x: y, z", "  a: 1"]
    assert read(text) == facts


def test_every_change_is_seen() -> None:
    before: dict[str, Any] = {"a": {"digest": "1", "sites": "x"}, "b": {"digest": "2"}, "gone": {}}
    now: dict[str, Any] = {"a": {"digest": "1", "sites": ""}, "b": {"digest": "3", "path": "p"}, "new": {}}
    assert differences(before, before) == []
    assert differences(before, now) == [
        "a: sites was x, is ",
        "b: digest was 2, is 3",
        "b: path was not there, is p",
        "gone: there is no such program any more",
        "new: there was no such program",
    ]


def test_the_message_says_what_changed_what_that_means_and_what_to_do() -> None:
    said = message([f"search, layers: 00{n} was product.native, is product.xla:bf16" for n in range(3)])
    assert said.startswith(
        "3 facts differ from those in tests/replay/facts.txt:\nsearch, layers: 000 was product.native"
    )
    assert "from the first request that differs a search goes another way" in said
    assert "A commit that only rebuilds changes none of this" in said
    assert said.endswith(f"say why in the commit: {COMMAND}")
    assert "\n... and 60 more\n" in message(map(str, range(100)))


def test_another_choice_is_seen(recorded: dict[str, Facts], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "STRATEGY", replace(conditions.STRATEGY, timing_seconds=1.0))
    with pytest.raises(pytest.fail.Exception, match=r"search, a loop on a bare processor: 003 was .* 1\.5 s"):
        check(GROUPS["search, a loop on a bare processor"], recorded)


def test_a_search_depends_on_no_other(recorded: dict[str, Facts]) -> None:
    """Neither on what this process has compared, nor on what it has in its caches."""
    name = "a loop"
    assert SEARCHES[name].run() == SEARCHES[name].run() == recorded[f"search, {name}"]
