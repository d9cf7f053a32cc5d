"""`pcp profile`: look into the database of measurements, carry it between machines, clean it, draw it."""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from pcp.backends import Target
from pcp.cli.asking import NoAnswer, asked, base_of
from pcp.cli.status import address, check_web
from pcp.errors import PCPError
from pcp.ir.program import load
from pcp.ir.program_file import reading, writing
from pcp.planning.capacity import human
from pcp.planning.diagnostics.tolerance_curve import draw_curve, frontier, points_of
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.measurement_text import InvalidRows
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.shared import KEPT_ROWS, RECEIVED, Shared, checked

DESCRIPTION = {
    "description": "List, export, merge, prune and plot the measurements that PCP keeps.",
    "epilog": """\
PCP keeps each measurement in a database: the program or part of a program (the subject), the way it was computed
(the path), the hardware, the versions, all times, the error against float64, the memory, or the reason of a failure. Plans use
only measurements from the same hardware and versions; measurements from elsewhere decide only what is tried first.

PROGRAM is the file of a program, or the first digits of a subject's digest.

actions:
  list                the subjects, and the best known path of each on this hardware
  show PROGRAM        every measured path of a program, the fastest first
  export FILE         write all measurements, or those of --program, as lines of JSON
  merge FILE          add measurements that another machine exported; duplicates are left out
  prune               remove the measurements that meet all given conditions: --older-than, --program,
                      --other-hardware, --other-versions
  curve PROGRAM       plot speed against tolerance
  serve HOST:PORT     offer to machines of like hardware what kernels took here: digests, names and ratios, no programs
  pull HOST:PORT      take what such a machine offers. It orders what is tried first and decides nothing: each kernel is
                      measured and verified here as before. The Workers of a run tell each other the same by themselves

examples:
  pcp profile list
  pcp profile show step.pcp
  pcp profile export epyc.jsonl                      then, on another machine: pcp profile merge epyc.jsonl
  pcp profile prune --other-versions --older-than 30
  pcp profile curve step.pcp --out curve.png
  pcp profile serve 127.0.0.1:8090                   then, elsewhere: pcp profile pull 127.0.0.1:8090
""",
}


class UnknownSubject(PCPError):
    """Nothing was measured of what is asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("action", choices=list(_ACTIONS), help="what to do; see the list below")
    parser.add_argument(
        "what",
        nargs="?",
        metavar="PROGRAM|FILE|HOST:PORT",
        help="the program for show and curve; the file for export and merge; the address for serve and pull",
    )
    parser.add_argument("--program", help="export, prune: only measurements of this program")
    parser.add_argument("--out", type=Path, default=Path("curve.png"), help="curve: the PNG file to write")
    parser.add_argument(
        "--older-than", type=float, metavar="DAYS", help="prune: measurements older than this"
    )
    parser.add_argument(
        "--other-hardware", action="store_true", help="prune: measurements from other hardware"
    )
    parser.add_argument(
        "--other-versions", action="store_true", help="prune: measurements with other versions"
    )
    parser.add_argument("--device", help="the device that `this hardware` means, such as cuda:0")
    parser.add_argument(
        "--database", type=Path, help="file of measurements; the one in PCP's cache folder if not given"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    takes = arguments.action not in ("list", "prune")
    if takes and arguments.what is None:
        kind = _NEEDED.get(arguments.action, "a file")
        raise UnknownSubject(f"`pcp profile {arguments.action}` needs {kind}; none was given")
    if not takes and arguments.what is not None:
        raise UnknownSubject(
            f"`pcp profile {arguments.action}` takes no {arguments.what!r}; name a program with --program"
        )
    _ACTIONS[arguments.action](ProfileDatabase(arguments.database), arguments)
    return 0


def _list(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    here = _here(arguments)
    about = database.subjects()
    rows = database.measurements()
    subjects: dict[str, list[Measurement]] = {}
    for row in rows:
        subjects.setdefault(row.subject, []).append(row)
    if not arguments.json:
        print(f"{database.file}: {_count(len(rows), 'measurement')} of {_count(len(subjects), 'subject')}")
    for subject, own in subjects.items():
        local = [row for row in own if row.hardware == here]
        best = min((row.ratio for row in local), default=float("inf"))
        facts: dict[str, Any] = {
            "subject": subject,
            "about": about.get(subject, ""),
            "measurements": len(own),
            "paths": len({row.path for row in own}),
            "failures": sum(row.failure is not None for row in own),
            "here": len(local),
            "fastest": None if best == float("inf") else best,
            "last": max(row.when for row in own),
        }
        if arguments.json:
            print(json.dumps(facts))
            continue
        shown = (
            "nothing measured here" if facts["fastest"] is None else f"fastest {best:.2f} of the plain time"
        )
        print(
            f"  {subject[:12]}  {_count(facts['paths'], 'path')}, {_count(len(own), 'measurement')}, "
            f"{_count(facts['failures'], 'failure')}; {shown}  {facts['about']}"
        )


def _show(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    subject, rows = _subject(database, arguments.what)
    hardware = database.hardware()
    here = _here(arguments)
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for row in rows:
        groups.setdefault((row.hardware, row.versions, row.path), []).append(row)
    described = [_facts(own, hardware, here) for own in groups.values()]
    described.sort(key=lambda facts: (not facts["here"], facts["ratio"] is None, facts["ratio"] or 0.0))
    if arguments.json:
        for facts in described:
            print(json.dumps(facts))
        return
    print(f"{subject}  {database.subjects().get(subject, '')}")
    place = ""
    for facts in described:
        title = f"on {facts['hardware']}{' (this)' if facts['here'] else ''}, {facts['versions']}"
        if title != place:
            place = title
            print(
                f"{title}\n  {'path':40}{'time':>12}{'of plain':>10}{'error':>10}{'memory':>12}{'count':>7}  last"
            )
        day = datetime.fromtimestamp(facts["when"], UTC).date()
        if facts["failure"] is None:
            time_ = "" if facts["seconds"] is None else f"{facts['seconds'] * 1e3:.3f} ms"
            of_plain = "" if facts["ratio"] is None else f"{facts['ratio']:.2f}"
            error = "" if facts["error"] is None else f"{facts['error']:.1e}"
            memory = "" if facts["peak_bytes"] is None else human(facts["peak_bytes"])
            middle = f"{time_:>12}{of_plain:>10}{error:>10}{memory:>12}{facts['measurements']:>7}"
        else:
            middle = f"  {facts['failure']}: {facts['detail'][:60]}"
        print(f"  {_described(database, facts['path']):40}{middle}  {day}")


def _facts(rows: Sequence[Measurement], hardware: Any, here: str) -> dict[str, Any]:
    """What all measurements of one path on one machine say together."""
    last = rows[-1]
    sound = [row for row in rows if row.failure is None]
    timed = [row for row in sound if row.seconds and row.plain_seconds]
    errors = [row.error for row in sound if row.error is not None]
    name = hardware[last.hardware].name if last.hardware in hardware else last.hardware
    name = "machines of others, as they say" if last.hardware == RECEIVED else name
    return {
        "path": last.path,
        "hardware": name,
        "here": last.hardware == here,
        "versions": last.versions,
        "seconds": median(row.typical for row in timed) if timed else None,
        "ratio": median(row.ratio for row in timed) if timed else None,
        "error": max(errors) if errors else None,
        "peak_bytes": sound[-1].peak_bytes if sound else None,
        "measurements": len(rows),
        "failure": None if sound or last.failure is None else last.failure.value,
        "detail": last.detail,
        "when": last.when,
    }


def _export(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    subject = None if arguments.program is None else _subject(database, arguments.program)[0]
    with writing(arguments.what):
        count = database.export(arguments.what, subject)
    _say(
        arguments,
        {"exported": count, "file": arguments.what},
        f"{arguments.what}: {_count(count, 'measurement')}",
    )


def _merge(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    with reading("the measurements", arguments.what):
        count = database.merge(arguments.what)
    _say(arguments, {"merged": count, "file": arguments.what}, f"{_count(count, 'new measurement')}")


def _prune(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    days = arguments.older_than
    count = database.prune(
        before=None if days is None else time.time() - 86400 * days,
        subject=None if arguments.program is None else _subject(database, arguments.program)[0],
        other_hardware_than=_here(arguments) if arguments.other_hardware else None,
        other_versions_than=versions() if arguments.other_versions else None,
    )
    _say(arguments, {"removed": count}, f"{_count(count, 'measurement')} removed")


def _curve(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    subject, rows = _subject(database, arguments.what)
    here = hardware_of(Target.of(arguments.device))
    points = points_of(row for row in rows if row.hardware == here.digest)
    name = database.subjects().get(subject) or f"program {subject[:12]}"
    with writing(arguments.out):
        draw_curve(points, arguments.out, name, here.name)
    best = frontier(points)
    steps = [{"tolerance": point.error, "speed": point.speed, "path": point.path} for point in best]
    _say(
        arguments,
        {"file": str(arguments.out), "paths": len(points), "curve": steps},
        "\n".join(
            [f"{arguments.out}: {_count(len(points), 'path')}"]
            + [
                f"  within {point.error:.1e}: {point.speed:.2f}x by {_described(database, point.path)}"
                for point in best
            ]
        ),
    )


def _serve(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    check_web()
    from pcp.dashboard.profile_pages import ProfilePages
    from pcp.dashboard.serving import serve

    try:
        host, port = address(arguments.what)
    except argparse.ArgumentTypeError as error:
        raise NoAnswer(str(error)) from None

    def ready(listening: str) -> None:
        text = f"pcp: {database.file} is offered at {listening}; on machines of like hardware: pcp profile pull {listening}"
        print(text, file=sys.stderr, flush=True)
        if arguments.json:
            print(json.dumps({"event": "serving", "address": listening}), flush=True)

    serve(ProfilePages(database).application(), host, port, ready)


def _pull(database: ProfileDatabase, arguments: argparse.Namespace) -> None:
    """Take pages until there are no more, or as many as are kept; what is no measurement ends it with nothing kept."""
    url = f"{base_of(arguments.what)}/profile?hardware={_here(arguments)}"
    rows: list[Shared] = []
    while len(rows) < KEPT_ROWS:
        page = asked(f"{url}&start={len(rows)}", "rows", "give the address that `pcp profile serve` prints")[
            "rows"
        ]
        if not page:
            break
        try:
            rows += checked(page)
        except (InvalidRows, TypeError) as error:
            raise InvalidRows(f"{url} does not offer measurements: {error}; nothing was kept") from None
    count = database.receive(rows) if rows else 0
    text = f"{_count(len(rows), 'row')} received, {count} of them new or said anew; they order what is tried first"
    _say(arguments, {"received": len(rows), "new": count}, text)


_NEEDED = {"show": "a program", "curve": "a program", "serve": "an address", "pull": "an address"}

_ACTIONS: dict[str, Callable[[ProfileDatabase, argparse.Namespace], None]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "merge": _merge,
    "prune": _prune,
    "curve": _curve,
    "serve": _serve,
    "pull": _pull,
}


def _subject(database: ProfileDatabase, what: str) -> tuple[str, list[Measurement]]:
    """The digest that a file or some digits stand for, and its measurements."""
    known = database.subjects()
    if Path(what).is_file() or not re.fullmatch(r"[0-9a-f]{4,64}", what):
        digest = load(Path(what)).digest
        subjects = [digest] if digest in known else []
    else:
        digest = what
        subjects = [subject for subject in known if subject.startswith(what)]
    if len(subjects) == 1:
        return subjects[0], database.measurements(subjects[0])
    if subjects:
        raise UnknownSubject(
            f"{what} begins {len(subjects)} subjects: {', '.join(subjects[:4])}; give more digits"
        )
    raise UnknownSubject(
        f"there is no measurement of {what} (digest {digest[:12]}) in {database.file}, which knows {len(known)} subjects; "
        "`pcp profile list` lists them, `pcp explore` measures"
    )


def _here(arguments: argparse.Namespace) -> str:
    return hardware_of(Target.of(arguments.device)).digest


def _described(database: ProfileDatabase, path: str) -> str:
    """A path by its first digits and its most frequent kernels; a kernel of a region is a name already."""
    if not re.fullmatch(r"[0-9a-f]{64}", path):
        return path
    known = database.path_of(path)
    if known is None:
        return path[:12]
    kernels = Counter(choice.kernel for choice in known.choices.values()).most_common()
    shown = [f"{count} {name}" for name, count in kernels[:1]] + ["..."] * (len(kernels) > 1)
    return f"{path[:12]} {' '.join(shown) or 'plain'}"


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _say(arguments: argparse.Namespace, facts: dict[str, Any], text: str) -> None:
    print(json.dumps(facts) if arguments.json else text)
