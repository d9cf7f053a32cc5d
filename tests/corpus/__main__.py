"""Run families of the corpus: `python -m tests.corpus elementwise`."""

import sys
import time

import tests.conftest  # noqa: F401

if __name__ == "__main__":
    import importlib
    from tests.corpus.comparison import check_jax
    for fam in sys.argv[1:]:
        fam, _, only = fam.partition("/")
        for case in importlib.import_module(f"tests.corpus.{fam}").CASES:
            if only and only != case.name: continue
            t = time.time()
            try:
                e = check_jax(case)
                print(f"{fam}/{case.name}: ok {e:.1e} {time.time()-t:.2f}s", flush=True)
            except Exception as error:
                print(f"{fam}/{case.name}: {type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''} {time.time()-t:.2f}s", flush=True)
                if only: raise
