"""llama.cpp as a contestant of `python -m benchmarks decoding`, and the GGUF file that it and PCP read.

    pip install llama-cpp-python gguf
    python -m benchmarks decoding --only q8_0 "llama q8_0" q4_0 "llama q4_0"

The file holds the same random parameters as everybody has, quantised by the package gguf: nobody is given better numbers.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pcp.models.config import DecoderConfig
from pcp.models.names import to_transformers

_PARTS = {
    "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "ln_1": "attn_norm", "ln_2": "ffn_norm",
}  # fmt: skip
_TOPS = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def written(parameters: Any, config: DecoderConfig, kind: str, folder: Path) -> Path:
    """A GGUF file of a GPT-2's parameters.

    Arguments:
        kind: `f16`, `q8_0` or `q4_0`, of its matrices.

    Raises:
        ImportError: the package gguf is not installed.
    """
    import gguf

    path = folder / f"{kind}.gguf"
    writer = gguf.GGUFWriter(str(path), "gpt2")
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_layer_norm_eps(config.epsilon)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config.vocabulary)
    form = gguf.GGMLQuantizationType[kind.upper()]
    for name, array in to_transformers(parameters, config).items():
        stem, _, part = name.rpartition(".")
        there = _TOPS.get(stem)
        if there is None:
            _, _, layer, piece = stem.split(".", 3)
            there = f"blk.{layer}.{_PARTS[piece]}"
            array = np.ascontiguousarray(array.T)
        if array.ndim == 1 or there == "position_embd":
            writer.add_tensor(f"{there}.{part}", np.ascontiguousarray(array, np.float32))
        else:
            writer.add_tensor(f"{there}.{part}", gguf.quants.quantize(array, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def by_llama(
    parameters: Any, config: DecoderConfig, kind: str, rows: int, prompt: int, count: int
) -> Callable[[np.ndarray, int], np.ndarray]:
    """What reads tokens (rows, many) from a place on, and gives the scores behind the last of the first row.

    Raises:
        ImportError: the package llama_cpp or gguf is not installed.
    """
    import llama_cpp

    folder = tempfile.TemporaryDirectory()
    path = written(parameters, config, kind, Path(folder.name))
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_seq_max = rows * (prompt + count + 16), rows * prompt, rows
    settings.n_threads = settings.n_threads_batch = 2
    context = llama_cpp.llama_init_from_model(model, settings)
    batch = llama_cpp.llama_batch_init(rows * prompt, 0, rows)

    def read(tokens: np.ndarray, place: int) -> np.ndarray:
        _ = silent, folder  # both live as long as what reads
        if place == 0:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        many = tokens.shape[1]
        for row, column in np.ndindex(tokens.shape):
            at = row * many + column
            batch.token[at], batch.pos[at], batch.n_seq_id[at] = int(tokens[row, column]), place + column, 1
            batch.seq_id[at][0], batch.logits[at] = row, column == many - 1
        batch.n_tokens = tokens.size
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama.cpp could not read its tokens")
        ends = [many * (row + 1) - 1 for row in range(rows)]
        scores = [
            np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, end), (config.vocabulary,))
            for end in ends
        ]
        for each in scores:
            each.argmax()
        first: np.ndarray = scores[0]
        return first

    return read
