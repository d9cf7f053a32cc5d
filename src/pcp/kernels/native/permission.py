"""Which native libraries may be used.

The environment variable PCP_NATIVE_KERNELS is an allow-list: `all`, as if it were not set; `none`; or names of libraries with
commas between them, each with the digest of a build if only that one is allowed: `normalisation@4f...`. A Worker refuses
programs from the wire that call native code, but for builds that this list names by digest.
"""

import os

ALLOWED = "PCP_NATIVE_KERNELS"


def refusal(name: str, digest: str = "") -> str:
    """Why a library, or one build of it, may not be used here; empty if it may."""
    entries = allowed()
    if "all" in entries or name in entries or f"{name}@{digest}" in entries:
        return ""
    if not digest and any(entry.startswith(f"{name}@") for entry in entries):
        return ""
    return f"{ALLOWED} does not name {name}{f'@{digest}' if digest else ''}"


def allowed() -> set[str]:
    """The entries of the list."""
    return {entry.strip() for entry in os.environ.get(ALLOWED, "all").split(",")}
