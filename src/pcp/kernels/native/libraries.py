"""The native libraries that PCP ships as source: one file of C++ each, with the headers that it includes."""

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Library:
    """C++ that becomes one shared library.

    Arguments:
        name: what it is called in features and allow-lists: `library:normalisation`.
        handlers: of XLA's foreign function interface that it defines; `norm` is the symbol `pcp_norm`.
        headers: files beside the source that it includes.
        folder: where the source is.
    """

    name: str
    handlers: tuple[str, ...]
    headers: tuple[str, ...] = ()
    folder: Path = FOLDER

    @property
    def source(self) -> Path:
        """The file that is compiled."""
        return self.folder / f"{self.name}.cc"

    @property
    def source_digest(self) -> str:
        """Of the source and its headers."""
        return _digest_of((self.source, *(self.folder / name for name in self.headers)))


@functools.cache
def _digest_of(files: tuple[Path, ...]) -> str:
    made = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        made.update(f"{file.name} {len(content)} ".encode() + content)
    return made.hexdigest()


LIBRARIES = {
    each.name: each
    for each in (
        Library(
            "activations", ("gelu", "gelu_gradient"), ("arrays.h", "elementwise.h", "rows.h", "scratch.h")
        ),
        Library(
            "attention",
            ("attention_f32", "attention_bf16", "attention_gradient_f32", "attention_gradient_bf16"),
            (
                *("arrays.h", "attention.h", "attention_layout.h", "attention_of_one.h", "elementwise.h"),
                *("panels/panels.h", "panels/tiles.h", "rows.h", "scratch.h"),
            ),
        ),
        Library(
            "batch_normalisation",
            ("batch_norm", "batch_norm_gradient"),
            ("../native/arrays.h", "../native/rows.h", "../native/scratch.h"),
            FOLDER.parent / "batch_normalisation",
        ),
        Library(
            "convolution",
            ("convolution_f32", "convolution_bf16", "convolution_bf16_x3"),
            (
                *("patches.h", "../native/arrays.h", "../native/elementwise.h", "../native/rows.h"),
                *("../native/scratch.h", "../native/panels/multiply.h"),
                *("../native/panels/panels.h", "../native/panels/tiles.h"),
            ),
            FOLDER.parent / "convolution",
        ),
        Library(
            "cross_entropy",
            ("cross_entropy", "cross_entropy_gradient"),
            ("arrays.h", "elementwise.h", "rows.h", "scratch.h"),
        ),
        Library(
            "dropout",
            ("dropout",),
            ("../native/arrays.h", "../native/rows.h", "../native/scratch.h"),
            FOLDER.parent / "dropout",
        ),
        Library(
            "normalisation", ("norm", "residual_norm", "norm_gradient"), ("arrays.h", "rows.h", "scratch.h")
        ),
        Library("optimizers", ("adamw",), ("arrays.h", "rows.h")),
        Library(
            "pooling",
            ("max_pool_gradient",),
            ("../native/arrays.h", "../native/rows.h", "../native/scratch.h"),
            FOLDER.parent / "pooling",
        ),
        Library(
            "products",
            ("product_f32", "product_bf16", "product_bf16_x3", "product_int8", "product_of_bf16"),
            (
                *("arrays.h", "elementwise.h", "rows.h", "scratch.h"),
                *("panels/byte_blocks.h", "panels/bytes.h"),
                *("panels/multiply.h", "panels/panels.h", "panels/tiles.h"),
            ),
        ),
        Library(
            "quantised",
            (
                *("quantised_bf16", "quantised_int8", "quantised_int4"),
                *("quantised_int8_int8", "quantised_int4_int8"),
                *("quantised_many_f32", "quantised_many_bf16", "quantised_many_int8"),
            ),
            (
                *(
                    "blocks.h",
                    "stored.h",
                    "../native/arrays.h",
                    "../native/elementwise.h",
                    "../native/rows.h",
                    "../native/scratch.h",
                ),
                *("../native/panels/bytes.h", "../native/panels/multiply.h"),
                *("../native/panels/panels.h", "../native/panels/tiles.h"),
            ),
            FOLDER.parent / "quantised",
        ),
        Library("steps", (), folder=FOLDER.parents[1] / "backends" / "arena"),
    )
}
"""Every library by its name."""
