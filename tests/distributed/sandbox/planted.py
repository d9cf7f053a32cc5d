"""Code that runs in the verifying child where a program is read, as if a hole of the parser had been used.

`verification` starts this module instead of its own. The artifact is Python, which calls `attempt` with a name and a function.
"""

import errno
import os
from typing import NoReturn

from pcp.distributed import verification
from pcp.distributed.verification import ProgramRefused


def taken_over(artifact: bytes) -> NoReturn:
    """Run the attack, and say what came of it in the words of a refusal."""
    found: dict[str, object] = {}

    def attempt(name: str, attack: object) -> None:
        try:
            found[name] = attack() or "done"  # type: ignore[operator]  # a lambda
        except OSError as error:
            found[name] = errno.errorcode.get(error.errno or 0, str(error))
        except Exception as error:
            found[name] = type(error).__name__

    exec(artifact.decode(), {"attempt": attempt, "os": os})
    raise ProgramRefused(" ".join(f"{name}={outcome}" for name, outcome in found.items()))


if __name__ == "__main__":
    verification._LONGEST_REASON = 100_000
    verification.Program.from_artifact = taken_over  # type: ignore[assignment]  # it stands for a hole
    verification._main()
    os._exit(0)
