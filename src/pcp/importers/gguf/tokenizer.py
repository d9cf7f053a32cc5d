"""The tokenizer in a GGUF file as one of the package `tokenizers`.

Source of the patterns: llama-vocab.cpp of the repository llama.cpp. Of the merges of SentencePiece, whose pieces have scores:
`SentencePieceExtractor` of the library transformers.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.tokenizer import TokenizerUnreadable

_OF_NUMBERS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _QWEN2 = _OF_NUMBERS % "{1,3}", _OF_NUMBERS % ""
_PATTERNS = {
    "gpt-2": "", "gpt2": "", "default": "", "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3, "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}  # fmt: skip
"""`tokenizer.ggml.pre` -> the pattern of the pieces that a text is cut into; empty: GPT-2's."""
_UNKNOWN, _CONTROL, _OWN, _BYTE = 2, 3, 4, 6
_SPACE = "▁"


def tokenizer_of(path: Path, said: Mapping[str, Any]) -> BytePairTokenizer | None:
    """The tokenizer that a file holds; None where it has none.

    Arguments:
        path: of the file, for messages; a tokenizer.json beside it stands for one that is not read here.
        said: the settings in the file.

    Raises:
        TokenizerUnreadable: it is of a kind that is not read.
        MissingExtra: the package `tokenizers` is not installed.
    """
    kind, tokens = said.get("tokenizer.ggml.model"), said.get("tokenizer.ggml.tokens")
    if kind is None or kind == "no_vocab" or not tokens:
        return None
    pre, beside = said.get("tokenizer.ggml.pre", "default"), path.with_name("tokenizer.json")
    pattern = _PATTERNS.get(pre) if isinstance(pre, str) else None
    if kind not in ("gpt2", "llama") or (kind == "gpt2" and pattern is None):
        if beside.exists():
            return BytePairTokenizer(beside.read_text(encoding="utf-8"))
        raise TokenizerUnreadable(
            f"{path} has a tokenizer of the kind {kind!r} that cuts texts by {pre!r}; of GGUF files llama, and gpt2 with "
            f"{', '.join(_PATTERNS)} are read. Put the model's tokenizer.json beside the file"
        )
    _check_numbers(path, said)
    made = _byte_pairs(said, pattern, pre) if kind == "gpt2" and pattern is not None else _pieces(said)
    types = said.get("tokenizer.ggml.token_type", [])
    added = [
        {
            "id": number, "content": token, "special": types[number] != _OWN, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False,
        }
        for number, token in enumerate(tokens[: len(types)])
        if types[number] in (_UNKNOWN, _CONTROL, _OWN)
    ]  # fmt: skip
    return BytePairTokenizer(json.dumps({"version": "1.0", "added_tokens": added, **made, **_first(said)}))


def _check_numbers(path: Path, said: Mapping[str, Any]) -> None:
    count = len(said["tokenizer.ggml.tokens"])
    for name in ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.unknown_token_id"):
        number = said.get(name, 0)
        if type(number) is not int or not 0 <= number < count:
            raise TokenizerUnreadable(f"{path}: {name} is {number!r}; expected one of its {count} tokens")


def _first(said: Mapping[str, Any]) -> dict[str, Any]:
    """The token that stands before every text, if there is one. Where a file does not say it, as llama.cpp has it."""
    first, tokens = said.get("tokenizer.ggml.bos_token_id"), said["tokenizer.ggml.tokens"]
    is_llama = (
        said["tokenizer.ggml.model"] == "llama"
        or _PATTERNS[said.get("tokenizer.ggml.pre", "default")] is _LLAMA3
    )
    if first is None or not said.get("tokenizer.ggml.add_bos_token", is_llama):
        return {"post_processor": None}
    token = tokens[first]
    alone: list[Any] = [
        {"SpecialToken": {"id": token, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    special = {token: {"id": token, "ids": [first], "tokens": [token]}}
    pair = [*alone, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "post_processor": {
            "type": "TemplateProcessing", "single": alone, "pair": pair, "special_tokens": special,
        }
    }  # fmt: skip


def _model(tokens: list[str], merges: list[Any], **more: Any) -> dict[str, Any]:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, **more}


def _byte_pairs(said: Mapping[str, Any], pattern: str, pre: str) -> dict[str, Any]:
    of_bytes = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": not pattern,
    }
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    whole = {"ignore_merges": True} if pattern is _LLAMA3 else {}
    return {
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, of_bytes]} if pattern else of_bytes,
        "decoder": of_bytes,
        "model": _model(said["tokenizer.ggml.tokens"], said.get("tokenizer.ggml.merges", []), **whole),
    }


def _pieces(said: Mapping[str, Any]) -> dict[str, Any]:
    tokens, scores = said["tokenizer.ggml.tokens"], said.get("tokenizer.ggml.scores", [])
    types = said.get("tokenizer.ggml.token_type", [1] * len(tokens))
    numbers = {token: number for number, token in enumerate(tokens)}
    pairs = []
    for token, score, kind in zip(tokens, scores, types, strict=False):
        if kind in (_UNKNOWN, _CONTROL, _BYTE):
            continue
        cuts = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [cut for cut in cuts if cut[0] in numbers and cut[1] in numbers]
        pairs += [(score, *cut) for cut in sorted(known, key=lambda cut: (numbers[cut[0]], numbers[cut[1]]))]
    pairs.sort(key=lambda each: (each[0], len(each[1]), len(each[2])), reverse=True)
    before = (
        [{"type": "Prepend", "prepend": _SPACE}] if said.get("tokenizer.ggml.add_space_prefix", True) else []
    )
    space = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if before else []
    unknown = said.get("tokenizer.ggml.unknown_token_id", 0)
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, space]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *after],
        },
        "model": _model(
            tokens,
            [list(each[1:]) for each in pairs],
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        ),
    }
