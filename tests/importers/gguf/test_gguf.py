"""Models in GGUF files: the scores of what their blocks mean, their tokenizers and templates, and what is refused."""

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.execution import exactly
from tests.importers.gguf.writing import NUMBERS, SIZES, blocks, meaning, write

import pcp
from pcp.cli import main
from pcp.importers import gguf
from pcp.importers.gguf.blocks import KINDS
from pcp.importers.text import open_model
from pcp.ir.tree import flatten
from pcp.models import decoder
from pcp.models.names import MissingWeights, WeightsMismatch, from_transformers
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.tokenizer import TokenizerUnreadable

LAYERS, HEADS, WIDTH, HIDDEN, WORDS = 1, 4, 256, 256, 60
IN_BLOCKS = [kind for kind, (numbers, _) in SIZES.items() if numbers > 1]


def settings(architecture: str, shared: int) -> dict[str, Any]:
    sizes = {
        "block_count": LAYERS, "context_length": 32, "embedding_length": WIDTH, "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS, "attention.head_count_kv": shared,
        "attention.layer_norm_rms_epsilon" if architecture != "gpt2" else "attention.layer_norm_epsilon": 1e-5,
    }  # fmt: skip
    said = {f"{architecture}.{name}": value for name, value in sizes.items()}
    return {"general.architecture": architecture, **said}


def model(
    architecture: str, kinds: list[str], seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings, tensors of a file, and by names of transformers in float64 what they mean; matrices are of kinds by turns."""
    shared = HEADS if architecture == "gpt2" else 2
    size, turn, generator = WIDTH // HEADS, itertools.cycle(kinds), np.random.default_rng(seed)
    tensors, wide = dict[str, Any](), dict[str, Any]()

    def add(there: str, ours: str, *shape: int) -> None:
        kind = next(turn) if len(shape) == 2 and "position" not in there else "F32"
        if kind in IN_BLOCKS:
            given: Any = blocks(kind, *shape, len(tensors))
            array = meaning(kind, given, shape[1])
        else:
            dtype = {"F16": np.float16, "BF16": ml_dtypes.bfloat16}.get(kind, np.float32)
            drawn = generator.normal(size=shape) * 0.05
            given = (drawn + 1 if there.endswith("norm.weight") else drawn).astype(dtype)
            array = given.astype(np.float64)
        tensors[there] = kind, given
        if architecture == "llama" and there.split(".")[-2] in (
            "attn_q",
            "attn_k",
        ):  # as its converter turns them
            array = array.reshape(-1, size // 2, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        wide[ours] = (
            array.T if architecture == "gpt2" and there.startswith("blk") and array.ndim == 2 else array
        )

    if architecture == "gpt2":
        add("token_embd.weight", "transformer.wte.weight", WORDS, WIDTH)
        add("position_embd.weight", "transformer.wpe.weight", 32, WIDTH)
        rows = {"attn_norm": ("ln_1",), "ffn_norm": ("ln_2",), "attn_qkv": ("attn.c_attn", 3 * WIDTH, WIDTH),
                "attn_output": ("attn.c_proj", WIDTH, WIDTH), "ffn_up": ("mlp.c_fc", HIDDEN, WIDTH),
                "ffn_down": ("mlp.c_proj", WIDTH, HIDDEN)}  # fmt: skip
        for there, (ours, *shape) in rows.items():
            add(f"blk.0.{there}.weight", f"transformer.h.0.{ours}.weight", *(shape or [WIDTH]))
            add(f"blk.0.{there}.bias", f"transformer.h.0.{ours}.bias", *(shape[:1] or [WIDTH]))
        add("output_norm.weight", "transformer.ln_f.weight", WIDTH)
        add("output_norm.bias", "transformer.ln_f.bias", WIDTH)
        return settings(architecture, shared), tensors, wide
    add("token_embd.weight", "model.embed_tokens.weight", WORDS, WIDTH)
    for there, ours in (("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")):
        add(f"blk.0.{there}.weight", f"model.layers.0.{ours}.weight", WIDTH)
    shapes = {"attn_q": ("self_attn.q_proj", WIDTH), "attn_k": ("self_attn.k_proj", shared * size),
              "attn_v": ("self_attn.v_proj", shared * size), "attn_output": ("self_attn.o_proj", WIDTH),
              "ffn_gate": ("mlp.gate_proj", HIDDEN), "ffn_up": ("mlp.up_proj", HIDDEN),
              "ffn_down": ("mlp.down_proj", WIDTH)}  # fmt: skip
    for there, (ours, outputs) in shapes.items():
        add(f"blk.0.{there}.weight", f"model.layers.0.{ours}.weight", outputs, WIDTH)
        if architecture == "qwen2" and there in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.0.{there}.bias", f"model.layers.0.{ours}.bias", outputs)
    if architecture == "qwen3":
        for kind in "qk":
            add(f"blk.0.attn_{kind}_norm.weight", f"model.layers.0.self_attn.{kind}_norm.weight", size)
    add("output_norm.weight", "model.norm.weight", WIDTH)
    if architecture == "llama":
        add("output.weight", "lm_head.weight", WORDS, WIDTH)
    return settings(architecture, shared), tensors, wide


MIXED = {
    "llama": ["Q4_K", "Q6_K", "Q8_0", "F16"],
    "gpt2": ["Q4_0", "Q5_1", "Q5_K"],
    "qwen2": ["Q4_1", "Q8_0", "BF16"],
    "qwen3": ["Q5_0", "Q4_0", "Q6_K", "F32"],
}


@pytest.mark.parametrize("architecture", MIXED)
def test_scores_are_those_of_what_the_file_means(tmp_path: Path, architecture: str) -> None:
    said, tensors, wide = model(architecture, MIXED[architecture])
    write(tmp_path / "model.gguf", said, tensors)
    opened = open_model(tmp_path / "model.gguf")
    exact = from_transformers(wide, opened.config, "f64")
    tokens = np.random.default_rng(0).integers(0, WORDS, (2, 9), np.int32)

    def scores(given: Any) -> Any:
        return exactly(
            pcp.trace(lambda p, x: decoder.logits(p, x, opened.config), given, tokens), given, tokens
        )

    right = scores(exact)
    assert right.std() > 0.1
    assert np.linalg.norm(scores(opened.parameters) - right) < 1e-5 * np.linalg.norm(right)
    assert opened.config.tied == (architecture != "llama")


def test_matrices_stay_as_small_as_they_are() -> None:
    """Numbers of four bits stay so; others are bytes."""
    for kind in IN_BLOCKS:
        content = blocks(kind, 6, 512, 1)
        kept = KINDS[NUMBERS[kind]].read(content.reshape(-1), (6, 512))
        assert kept.parts["values"].nbytes == 6 * 512 // (2 if kind.startswith("Q4") else 1)
        np.testing.assert_allclose(kept.wide(), meaning(kind, content, 512), rtol=1e-6, atol=1e-6)


def test_matrices_become_no_float32(tmp_path: Path) -> None:
    said, tensors, _ = model("qwen2", ["Q4_0"])
    write(tmp_path / "model.gguf", said, tensors)
    leaves = flatten(open_model(tmp_path / "model.gguf").parameters)[0]
    largest = sorted(leaves, key=lambda leaf: -leaf.nbytes)[:5]
    assert {leaf.dtype for leaf in largest} == {np.dtype(np.uint8)}


def with_tokenizer(said: dict[str, Any], **more: Any) -> dict[str, Any]:
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())[: WORDS - 4]
    letters = [*"abcdefght", "Ġ"]
    tokens = [*dict.fromkeys([*letters, *alphabet])][: WORDS - 3]
    tokens += ["th", "Ġt", "<|end|>"]
    return said | {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3], "tokenizer.ggml.merges": ["t h", "Ġ t"],
        "tokenizer.ggml.eos_token_id": len(tokens) - 1, "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}", **more,
    }  # fmt: skip


def test_a_file_brings_its_tokenizer_its_end_and_its_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, tensors, _ = model("qwen2", ["Q8_0"])
    path = tmp_path / "model.gguf"
    write(path, with_tokenizer(said), tensors)
    opened = open_model(path)
    assert opened.tokenizer is not None
    end = WORDS - 1
    assert opened.tokenizer.encode("the that<|end|>").tolist() == [57, 4, 9, 57, 0, 8, end]
    assert opened.tokenizer.decode([57, 4, 58, 7]) == "the th"
    assert opened.habits.ends == (end,)
    named = {"tokenizer.ggml.eos_token_id": 3, "tokenizer.ggml.eot_token_id": 900}
    tokens = [*with_tokenizer(said)["tokenizer.ggml.tokens"][:-1], "<|endoftext|>"]
    write(
        tmp_path / "other.gguf", with_tokenizer(said, **named, **{"tokenizer.ggml.tokens": tokens}), tensors
    )
    assert open_model(tmp_path / "other.gguf").habits.ends == (3, end)  # as of a folder of transformers
    template = gguf.template_of(path)
    assert template is not None
    assert template.settings == {"bos_token": "<|end|>", "eos_token": "<|end|>"}
    assert (
        main(["generate", str(path), "--prompt", "the", "--tokens", "5", "--temperature", "0", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["prompt"] == "the"


def test_pieces_of_sentencepiece_are_joined_by_their_scores(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    said, tensors, _ = model("llama", ["Q8_0"])
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "▁",
        "a",
        "b",
        "c",
        "▁a",
        "ab",
        "▁ab",
        "bc",
        *(f"<0x{byte:02X}>" for byte in range(49)),
    ]
    scores = [0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -9.0, -3.0, -2.0, -4.0, -1.0, *[0.0] * 49]
    more = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 8, *[6] * 49], "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    write(tmp_path / "model.gguf", said | more, tensors)
    opened = open_model(tmp_path / "model.gguf")
    tokenizer = opened.tokenizer
    assert tokenizer is not None
    assert list(opened.tokens_of("a")) == [
        1,
        tokens.index("▁a"),
    ]  # a text to continue begins as a server's does
    named = [tokens[number] for number in tokenizer.encode("ab abc a").tolist()]
    assert named == ["▁ab", "▁a", "bc", "▁a"]  # bc is the best of all pairs, then ab
    assert tokenizer.decode(tokenizer.encode("ab abc a")) == "ab abc a"
    assert isinstance(tokenizer, BytePairTokenizer)
    assert tokenizer.encode_prompt("a") == [1, tokens.index("▁a")]


def test_llama_3_begins_texts_where_a_file_does_not_say(tmp_path: Path) -> None:
    """As llama.cpp has it: files of Llama 3 often lack add_bos_token."""
    pytest.importorskip("tokenizers")
    said, tensors, _ = model("qwen2", ["Q8_0"])
    for pre, more, begun in (
        ("llama-bpe", {}, True),
        ("llama-bpe", {"add_bos_token": False}, False),
        ("qwen2", {}, False),
    ):
        named = {f"tokenizer.ggml.{name}": value for name, value in ({"pre": pre} | more).items()}
        write(tmp_path / "model.gguf", with_tokenizer(said, **named), tensors)
        tokenizer = open_model(tmp_path / "model.gguf").tokenizer
        assert isinstance(tokenizer, BytePairTokenizer)
        assert tokenizer.encode_prompt("th") == [WORDS - 1] * begun + [57]


def test_the_attention_factor_of_yarn_comes_on_top(tmp_path: Path) -> None:
    """llama.cpp multiplies 1 + 0.1 ln(factor) by it; transformers' takes its place."""
    scaled = {"llama__rope.scaling.type": "yarn", "llama__rope.scaling.factor": 4.0}
    found = [
        open_model(changed(tmp_path / "model.gguf", **scaled, **more)).config.rotary
        for more in ({}, {"llama__rope.scaling.attn_factor": 1.0}, {"llama__rope.scaling.attn_factor": 0.5})
    ]
    scales = [rotary.scale for rotary in found if rotary is not None]
    np.testing.assert_allclose(scales, np.array([1, 1, 0.5]) * (1 + 0.1 * np.log(4)))


def changed(path: Path, **more: Any) -> Any:
    said, tensors, _ = model("llama", ["Q4_0"])
    given = {name.replace("__", "."): value for name, value in more.items()}
    write(path, {name: value for name, value in (said | given).items() if value is not None}, tensors)
    return path


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"general__architecture": "mamba"},
            "holds a model of the architecture 'mamba'; of GGUF files gpt2, llama, qwen2, qwen3 are",
        ),
        (
            {"llama__block_count": None},
            "lacks llama.block_count, or has a list there: convert the model again",
        ),
        ({"llama__attention.head_count": [4]}, "lacks llama.attention.head_count, or has a list there"),
        ({"llama__expert_count": 8}, "has 8 experts, and those of GGUF files are not read; give the folder"),
        (
            {"llama__rope.scaling.type": "spiral"},
            "scales places by 'spiral'; expected one of none, linear, yarn",
        ),
        ({"llama__rope.scaling.type": ["yarn"]}, r"scales places by \['yarn'\]"),
        ({"llama__block_count": 1 << 31}, "has 2147483648 blocks, and 12 tensors"),
        (
            {"llama__attention.key_length": (1 << 31) - 2},
            "sets attention.key_length to 2147483646; expected at most",
        ),
        ({"llama__rope.dimension_count": 32}, "turns 32 of the 64 features of a head"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(gguf.UnsupportedGguf, match=words):
        open_model(changed(tmp_path / "model.gguf", **more))


def test_a_tokenizer_of_another_kind_is_refused_unless_one_lies_beside(tmp_path: Path) -> None:
    said, tensors, _ = model("qwen2", ["Q8_0"])
    path = tmp_path / "model.gguf"
    write(path, with_tokenizer(said, **{"tokenizer.ggml.pre": "other"}), tensors)
    with pytest.raises(
        pcp.errors.PCPError, match=r"cuts texts by 'other'.*Put the model's tokenizer.json beside the file"
    ):
        open_model(path)
    tokenizers = pytest.importorskip("tokenizers")
    whole = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    whole.save(str(tmp_path / "tokenizer.json"))
    assert open_model(path).tokenizer is not None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"pre": ["qwen2"]}, r"cuts texts by \['qwen2'\]"),
        ({"add_bos_token": True, "bos_token_id": 900}, "bos_token_id is 900; expected one of its 60 tokens"),
        ({"model": "llama", "unknown_token_id": 60}, "unknown_token_id is 60; expected one of its 60 tokens"),
    ],
)
def test_a_tokenizer_that_cannot_be_is_refused(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    said, tensors, _ = model("qwen2", ["Q8_0"])
    named = {f"tokenizer.ggml.{name}": value for name, value in more.items()}
    write(tmp_path / "model.gguf", with_tokenizer(said, **named), tensors)
    with pytest.raises(TokenizerUnreadable, match=words):
        open_model(tmp_path / "model.gguf")


@pytest.mark.parametrize("name", ["odd", "", "rope_freqs.weight"])
def test_a_tensor_that_no_model_has_is_refused(tmp_path: Path, name: str) -> None:
    said, tensors, _ = model("llama", ["Q8_0"])
    write(tmp_path / "model.gguf", said, tensors | {name: ("F32", np.ones(3, np.float32))})
    with pytest.raises(WeightsMismatch):
        open_model(tmp_path / "model.gguf")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = changed(tmp_path / "model.gguf")
    whole = path.read_bytes()

    def refused(content: bytes, kind: type[Exception], words: str) -> None:
        path.write_bytes(content)
        with pytest.raises(kind, match=words):
            open_model(path)

    refused(b"ELF" + whole[3:], gguf.GgufForeign, r"model\.gguf is no GGUF file: it does not begin with GGUF")
    refused(b"", gguf.GgufForeign, "is no GGUF file")
    refused(whole[:4] + b"\1" + whole[5:], gguf.GgufVersion, "is of version 1 of GGUF; expected 2 or 3")
    for size in (7, 30, 100, 700):
        refused(
            whole[:size], gguf.GgufTruncated, f"has {size} bytes and ends within what it says of its model"
        )
    refused(
        whole[:-40],
        gguf.GgufTruncated,
        r"and tensor output\.weight ends at byte \d+: copy or download it again",
    )
    name = whole.index(b"token_embd.weight") + len("token_embd.weight")
    kind = name + 4 + 16
    refused(
        whole[:kind] + b"\x13" + whole[kind + 1 :],
        gguf.UnknownQuantisation,
        r"tensor token_embd.weight is in IQ1_S; F32, F16",
    )
    refused(
        whole[:name] + b"\x09" + whole[name + 1 :],
        gguf.GgufCorrupt,
        "token_embd.weight has 9 axes; expected at most 4",
    )
    refused(
        whole[: name + 4] + b"\1" + whole[name + 5 :],
        gguf.GgufCorrupt,
        "needs rows of a multiple of 32 numbers",
    )
    for axes in (struct.pack("<IQ", 1, 256), struct.pack("<IQQ", 2, 256, 0)):
        tail = whole[name + 4 + 16 : name + 4 + 16 + 4]
        refused(
            whole[:name] + axes + tail + whole[name + 4 + 16 + 4 :],
            gguf.GgufCorrupt,
            "token_embd.weight of shape .* needs .* and two axes that are not empty",
        )
    value = whole.index(b"general.architecture") + len("general.architecture")
    refused(
        whole[:value] + b"\x0d" + whole[value + 1 :], gguf.GgufCorrupt, "has a value of type 13 before byte"
    )


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    said, tensors, _ = model("llama", ["Q4_0"])
    del tensors["blk.0.ffn_up.weight"]
    write(tmp_path / "model.gguf", said, tensors)
    with pytest.raises(MissingWeights, match=r"model\.layers\.0\.mlp\.up_proj\.weight.* missing"):
        open_model(tmp_path / "model.gguf")
