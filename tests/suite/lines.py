"""Lines of the rooms of the code, the folders of `src/pcp`, each with the files that lie in it. `lines.txt` has those recorded.

    python -m tests.suite.lines              print the rooms that differ from what was recorded, and the lines of all
    python -m tests.suite.lines record       write the lines of today there

A room may differ by a hundredth, or by twenty lines, before it is recorded anew; recorded lines do not follow by themselves, so
a room cannot creep. Whoever records a room that grew says in the commit why; one that shrank is recorded, too, so that what was
won is not lost again. All lines of a file count, those of comments as well: there is one way to count them.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

CODE = Path(__file__).parents[2] / "src" / "pcp"
FILE = Path(__file__).with_name("lines.txt")
KINDS = (".py", ".cc", ".h", ".capnp", ".html")
COMMAND = "python -m tests.suite.lines record"
SHARE, LINES = 0.01, 20
"""By how much a room may differ from what was recorded: the larger of the two."""


def counted(code: Path = CODE) -> dict[str, int]:
    """The lines of each room, by its path below `src`."""
    found: Counter[str] = Counter()
    for file in code.rglob("*"):
        if file.suffix in KINDS:
            room = file.parent.relative_to(code.parent).as_posix()
            found[room] += len(file.read_text("utf-8").splitlines())
    return dict(found)


def written(rooms: Mapping[str, int]) -> str:
    """The text of the table. It has no sum: two changes in different rooms are no conflict."""
    return "".join(f"{lines:6} {room}\n" for room, lines in sorted(rooms.items()))


def read(text: str) -> dict[str, int]:
    """What `written` wrote."""
    rows = (line.split(maxsplit=1) for line in text.splitlines())
    return {room: int(lines) for lines, room in rows}


def complaints(recorded: Mapping[str, int], rooms: Mapping[str, int]) -> list[str]:
    """The rooms that differ by more than they may, and what to do."""
    found = []
    for room in sorted(recorded.keys() | rooms.keys()):
        was, now = recorded.get(room, 0), rooms.get(room, 0)
        if room not in recorded:
            found.append(
                f"src/{room} is a new room of {now} lines: run `{COMMAND}`, and say in the commit why it is there"
            )
        elif room not in rooms:
            found.append(f"src/{room}, a room of {was} lines, is no more: run `{COMMAND}`")
        elif now - was > _allowed(was):
            found.append(
                f"src/{room} has {now} lines, {now - was} more than were recorded: make room in it, or run `{COMMAND}` and say "
                "in the commit why it grew"
            )
        elif was - now > _allowed(was):
            found.append(
                f"src/{room} has {now} lines, {was - now} fewer than were recorded: run `{COMMAND}`, so that it stays as small"
            )
    return found


def _allowed(lines: int) -> int:
    return max(LINES, round(SHARE * lines))


def main(arguments: list[str]) -> int:
    """The command."""
    rooms = counted()
    recorded = read(FILE.read_text("utf-8")) if FILE.exists() else {}
    for room in sorted(recorded.keys() | rooms.keys()):
        was, now = recorded.get(room, 0), rooms.get(room, 0)
        if was != now:
            print(f"{now:6} {now - was:+6}  src/{room}")
    print(f"{sum(rooms.values()):6} {sum(rooms.values()) - sum(recorded.values()):+6}  in {len(rooms)} rooms")
    if arguments == ["record"]:
        FILE.write_text(written(rooms), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
