"""A run takes a part of each wide table; another commit takes another part; the long tests take all of it."""

import pytest
from tests.suite import share

pytest_plugins = ["pytester"]
SHARES = [f"{number:012x}" for number in range(40)]


def test_a_share_is_one_part_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = set()
    for chosen in SHARES:
        monkeypatch.setenv(share.VARIABLE, chosen)
        cases = share.part(range(10), 3)
        assert len(cases) == 4
        assert cases == sorted(cases) == share.part(range(10), 3)
        taken |= set(cases)
    assert taken == set(range(10))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_table_is_never_left_out(count: int) -> None:
    assert len(share.part(range(count), 5)) == min(count, 1)


def test_no_share_is_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(share.VARIABLE)
    monkeypatch.setattr(share, "_commit", lambda: "1234")
    assert share.settle() == "1234"


def test_commits_simulate_every_block_of_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for number in range(400):
        monkeypatch.setenv(share.VARIABLE, f"{number:012x}")
        found.add(share.first_seed(4000))
    assert found == set(range(0, share.SEEDS, 4000))
    assert share.first_seed(4000) == share.first_seed(4000)
    assert share.first_seed(1_000_000) == 0


FILE = """
import pytest

@pytest.mark.share(4)
@pytest.mark.parametrize("n", range(8))
def test_rows(n): ...

@pytest.mark.share(3, each="name")
@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize("name", ["a", "b"])
def test_kinds(name, n): ...

@pytest.mark.share(2, each="n.numerator")
@pytest.mark.parametrize("n", [1, 1, 2])
def test_fields(n): ...

@pytest.mark.share(2)
@pytest.mark.parametrize("n", [0, *[pytest.param(n, marks=pytest.mark.long) for n in range(1, 20)]])
def test_beside_long_ones(n): ...

@pytest.mark.parametrize("n", [0, *[pytest.param(n, marks=pytest.mark.share(2)) for n in range(1, 5)]])
def test_one_is_always_there(n): ...

@pytest.mark.long
def test_long(): ...
"""
HOOK = """
from tests.suite import share
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    share.make_others_long(items)

def pytest_configure(config):
    config.addinivalue_line("markers", "share(of, each=None): x")
    config.addinivalue_line("markers", "long: x")
"""


def _names(pytester: pytest.Pytester, expression: str) -> list[str]:
    result = pytester.inline_run("-m", expression, "-p", "no:cacheprovider")
    return [report.nodeid.rpartition("::")[2] for report in result.getreports("pytest_runtest_logreport")][
        ::3
    ]


def test_other_cases_are_long_in_this_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(FILE)
    pytester.makeconftest(HOOK)
    every = set(_names(pytester, ""))
    for chosen in SHARES[:3]:
        monkeypatch.setenv(share.VARIABLE, chosen)
        quick, long = set(_names(pytester, "not long")), set(_names(pytester, "long"))
        assert quick | long == every
        assert not quick & long
        assert sum(name.startswith("test_rows") for name in quick) == 2
        assert [sum(name.startswith(f"test_kinds[{kind}") for name in quick) for kind in "ab"] == [2, 2]
        assert sum(name.startswith("test_fields") for name in quick) == 2
        assert "test_beside_long_ones[0]" in quick
        assert sum(name.startswith("test_one") for name in quick) == 1 + 2
        assert "test_one_is_always_there[0]" in quick
    monkeypatch.setenv(share.VARIABLE, share.NONE)
    assert set(_names(pytester, "long")) == every - {"test_one_is_always_there[0]"}
    assert _names(pytester, "not long") == ["test_one_is_always_there[0]"]
