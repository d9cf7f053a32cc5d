"""Checks families or single cases, one JSON line each: `python -m tests.corpus elementwise control/cond`."""

import json
import sys
import time

import tests.conftest  # noqa: F401  # it chooses the CPU before JAX is imported


def main(names: list[str]) -> None:
    """Check the named families, `family/case` or `family:from_index`, and print what came of each case."""
    from tests.corpus import cases_of
    from tests.corpus.checking import check

    for name in names:
        family, _, only = name.partition("/")
        family, _, start = family.partition(":")
        for case in cases_of(family)[int(start or 0) :]:
            if only and case.name != only:
                continue
            began = time.perf_counter()
            found: dict[str, object] = {"case": f"{family}/{case.name}", "refused": bool(case.refusal)}
            try:
                found["error"] = check(family, case)
            except Exception as error:  # whatever it is, it is what came of this case
                found["failure"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
            found["seconds"] = round(time.perf_counter() - began, 2)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
