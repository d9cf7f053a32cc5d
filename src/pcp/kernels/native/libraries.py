"""The native libraries that PCP ships as source: one file of C++ each, with the headers that it includes.

`setup.py` loads this file alone, so it imports nothing but the standard library.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_GAP = rb"(?:\s|/\*.*?\*/)*"
_INCLUDE = re.compile(
    rb"^(?:\xef\xbb\xbf)?" + _GAP.join((b"", b"#", rb"(?:include(?:_next)?|import|embed)", rb'"([^"\n]+)"')),
    re.MULTILINE | re.DOTALL,
)
_CONTINUED = re.compile(rb"\\\r?\n")


@dataclass(frozen=True, slots=True)
class Library:
    """C++ that becomes one shared library.

    Arguments:
        name: what it is called in features and allow-lists: `library:normalisation`.
        handlers: of XLA's foreign function interface that it defines; `norm` is the symbol `pcp_norm`.
        folder: where the source is.
    """

    name: str
    handlers: tuple[str, ...]
    folder: Path = FOLDER

    @property
    def source(self) -> Path:
        """The file that is compiled."""
        return self.folder / f"{self.name}.cc"

    @property
    def source_digest(self) -> str:
        """Of the source and its headers, as they are now."""
        hasher = hashlib.sha256()
        for file, content in included_by(self.source).items():
            hasher.update(f"{file.name} {len(content)} ".encode() + content)
        return hasher.hexdigest()


def included_by(source: Path) -> dict[Path, bytes]:
    """A file of C++ and those beside it that it includes, or that these include: the file first, then the nearest.

    What is not where an `#include` says is a header of XLA's, which has a digest of its own, or is missed by the compiler.
    """
    contents: dict[Path, bytes] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        if file in contents:
            continue
        content = contents[file] = file.read_bytes()
        named = (Path(os.fsdecode(name)) for name in _INCLUDE.findall(_CONTINUED.sub(b"", content)))
        waiting += (
            beside for name in named if (beside := Path(os.path.normpath(file.parent / name))).is_file()
        )
    ways = {file: Path(os.path.relpath(file, source.parent)).parts for file in contents}
    return {
        file: contents[file]
        for file in sorted(contents, key=lambda file: (file != source, len(ways[file]), ways[file]))
    }


LIBRARIES = {
    each.name: each
    for each in (
        Library("activations", ("gelu", "gelu_gradient")),
        Library(
            "attention",
            ("attention_f32", "attention_bf16", "attention_gradient_f32", "attention_gradient_bf16"),
        ),
        Library(
            "batch_normalisation",
            ("batch_norm", "batch_norm_gradient"),
            FOLDER.parent / "batch_normalisation",
        ),
        Library(
            "convolution",
            ("convolution_f32", "convolution_bf16", "convolution_bf16_x3"),
            FOLDER.parent / "convolution",
        ),
        Library("cross_entropy", ("cross_entropy", "cross_entropy_gradient")),
        Library("dropout", ("dropout",), FOLDER.parent / "dropout"),
        Library("normalisation", ("norm", "residual_norm", "norm_gradient")),
        Library("optimizers", ("adamw",)),
        Library("pooling", ("max_pool_gradient",), FOLDER.parent / "pooling"),
        Library(
            "products",
            (
                *("product_f32", "product_bf16", "product_bf16_x3", "product_int8", "product_of_bf16"),
                *(
                    f"{verb}_product_{form}"
                    for form in ("f32", "bf16", "int8", "of_bf16")
                    for verb in ("keep", "kept")
                ),
            ),
        ),
        Library(
            "quantised",
            (
                *("quantised_bf16", "quantised_int8", "quantised_int4"),
                *("quantised_int8_int8", "quantised_int4_int8"),
                *("quantised_many_f32", "quantised_many_bf16", "quantised_many_int8"),
            ),
            FOLDER.parent / "quantised",
        ),
        Library("steps", (), FOLDER.parents[1] / "backends" / "arena"),
    )
}
"""Every library by its name."""
