"""House rules that no linter knows: sizes, names, and what no file of the project may say."""

import functools
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST_FILE = {"src": 400}
LONGEST_FILE_ELSEWHERE = 500
MOST_FILES = 20  # of one folder

NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc"}

# pattern -> what to do instead. The brackets keep the patterns from matching themselves.
FORBIDDEN_ANYWHERE = {
    r"(?i)py[p]i\.org|python[h]osted\.|download\.py[t]orch\.": "name no package index: pip is configured",
    r"(?<![\w.}/-])/(wor[k]|hom[e]|roo[t]|User[s])/\w": "name no path of one machine",
    r"(?<![\w/])share[d]/": "refer only to files of the project",
}
FORBIDDEN_IN_PYTHON = {
    r"\b(TOD[O]|FIXM[E]|XX[X])\b": "finish it, or open an issue",
    r"# type: ignor[e](?!\[[\w, -]+\]  # \w)": "write `# type: ignor[e][code]  # reason`",
}


OPENING = re.compile(r"(\s*#.*\n)*\s*[rR]?[\"']")  # of a docstring, which is the first statement


@functools.cache
def project_files() -> list[Path]:
    """Return the files that git tracks or would track, in a fixed order."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in sorted(listed.splitlines()) if (path := ROOT / name).is_file()]


def matches(text: str, rules: dict[str, str]) -> list[tuple[int, str, str]]:
    """Return line number, matched text and advice for every match of a rule."""
    broken = {pattern: advice for pattern, advice in rules.items() if re.search(pattern, text)}
    return [
        (number, match.group(), advice)
        for number, line in enumerate(text.splitlines() if broken else (), start=1)
        for pattern, advice in broken.items()
        for match in [re.search(pattern, line)]
        if match
    ]


def python_complaints(file: Path, text: str) -> list[str]:
    """Return what is wrong with the name, size or opening of the Python file at `file` in the project."""
    found = []
    for part in file.with_suffix("").parts:
        if part in NAMES_THAT_SAY_NOTHING:
            found.append(f"{file}: '{part}' says nothing; name the one idea that the file holds")
    lines = len(text.splitlines())
    longest = LONGEST_FILE.get(file.parts[0], LONGEST_FILE_ELSEWHERE)
    if lines >= longest:
        found.append(f"{file}: {lines} lines; a file of {longest} lines is two ideas")
    if not OPENING.match(text):
        found.append(f"{file}: begin with a docstring that says what the file is for")
    return found


def crowded(files: Iterable[Path]) -> list[str]:
    """Return every folder in which more than `MOST_FILES` of these files lie."""
    return [
        f"{folder}: {count} files; a folder holds at most {MOST_FILES}: make a folder of those that belong together"
        for folder, count in sorted(Counter(file.parent for file in files).items())
        if count > MOST_FILES
    ]


def test_no_folder_is_crowded() -> None:
    assert crowded(path.relative_to(ROOT) for path in project_files()) == []


def test_a_crowded_folder_is_found() -> None:
    files = [Path(f"tests/ir/test_{number}.py") for number in range(MOST_FILES)]
    below = [Path("tests/ir/toolkit/test_constants.py"), Path("tests/conftest.py")]
    assert crowded([*files, *below]) == []
    [found] = crowded([*files, Path("tests/ir/rows.md"), *below])
    assert found.startswith("tests/ir: 21 files; a folder holds at most 20")


def test_python_files_have_a_size_a_name_and_a_purpose() -> None:
    found = []
    for path in project_files():
        file = path.relative_to(ROOT)
        if path.suffix == ".py":
            found += python_complaints(file, path.read_text(encoding="utf-8"))
    assert found == []


def test_no_file_says_what_only_one_machine_knows() -> None:
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or an archive holds no prose
        rules = FORBIDDEN_ANYWHERE | (FORBIDDEN_IN_PYTHON if path.suffix == ".py" else {})
        for number, match, advice in matches(text, rules):
            found.append(f"{path.relative_to(ROOT)}:{number}: '{match}': {advice}")
    assert found == []


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("index = 'https://py" + "pi.org/simple'", "name no package index"),
        ("--extra-index-url https://download.py" + "torch.org/whl", "name no package index"),
        ("DATA = '/wor" + "k/data/input.txt'", "name no path of one machine"),
        ("see share" + "d/notes.md", "refer only to files of the project"),
        ("x = 1  # TOD" + "O: more", "finish it"),
        ("x = y  # type: ignor" + "e", "reason"),
        ("x = y  # type: ignor" + "e[arg-type]", "reason"),
    ],
)
def test_a_forbidden_word_is_found(line: str, advice: str) -> None:
    [(number, _, found)] = matches(f"first\n{line}\n", FORBIDDEN_ANYWHERE | FORBIDDEN_IN_PYTHON)
    assert number == 2
    assert advice in found


@pytest.mark.parametrize(
    "line",
    [
        "pypi-simple finds the archive",
        "from .worker import Worker",
        "the framework/backend pair",
        "x = y  # type: ignor" + "e[arg-type]  # pycapnp has no types",
    ],
)
def test_an_ordinary_line_is_left_alone(line: str) -> None:
    assert matches(line, FORBIDDEN_ANYWHERE | FORBIDDEN_IN_PYTHON) == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("src/pcp/utils.py", '"""Things."""\n', "'utils' says nothing"),
        ("src/pcp/common/shapes.py", '"""Shapes."""\n', "'common' says nothing"),
        ("src/pcp/shapes.py", "x = 1\n", "begin with a docstring"),
        ("src/pcp/shapes.py", '"""Shapes."""\n' + "x = 1\n" * 400, "401 lines"),
        ("tests/test_shapes.py", '"""Shapes."""\n' + "x = 1\n" * 500, "501 lines"),
    ],
)
def test_a_broken_house_rule_is_found(file: str, text: str, complaint: str) -> None:
    [found] = python_complaints(Path(file), text)
    assert complaint in found
