"""llama.cpp as one more peer of `bench/peers.py`: a GPT-2 with the same fp32 weights, in a GGUF file.

It needs `pip install llama-cpp-python gguf`, which compiles llama.cpp for this machine; LLAMA_CPP_LIB_PATH names a
folder that holds it compiled already. Without them there is no row. The keys and values are float32, as kvviz's are.
llama.cpp looks GELU up in a table of float16, so its tokens may differ.
"""

import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kvviz.decoding.loading import Loaded

# GPT-2's names in transformers -> their names in GGUF; {} is the number of a block
BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def is_installed() -> bool:
    """Whether both packages are there."""
    try:
        import gguf  # noqa: F401
        import llama_cpp  # noqa: F401
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def fits(loaded: Loaded) -> bool:
    """Whether llama.cpp computes the same model from the same numbers: a GPT-2 in float32 on a CPU."""
    same = loaded.dtype == "float32" and loaded.device == "cpu"
    return same and loaded.model.config.model_type == "gpt2" and not loaded.model.config.scale_attn_by_inverse_layer_idx


def write_gguf(loaded: Loaded, path: Path, tokenizer: Path | None = None) -> None:
    """Write the model's weights, unchanged, into a GGUF file; its vocabulary from a tokenizer.json, or none."""
    import gguf

    config, state = loaded.model.config, loaded.model.state_dict()
    file = gguf.GGUFWriter(path, "gpt2")
    file.add_context_length(config.n_positions)
    file.add_embedding_length(config.n_embd)
    file.add_block_count(config.n_layer)
    file.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
    file.add_head_count(config.n_head)
    file.add_layer_norm_eps(config.layer_norm_epsilon)
    file.add_file_type(gguf.LlamaFileType.ALL_F32)
    if tokenizer is None:
        file.add_tokenizer_model("no_vocab")
        file.add_vocab_size(config.vocab_size)
    else:
        _add_tokenizer(file, tokenizer)

    def add(name: str, tensor: torch.Tensor) -> None:
        file.add_tensor(name, np.ascontiguousarray(tensor.detach().float().numpy()))

    add("token_embd.weight", state["transformer.wte.weight"])
    add("position_embd.weight", state["transformer.wpe.weight"])
    for end in ("weight", "bias"):
        add(f"output_norm.{end}", state[f"transformer.ln_f.{end}"])
        for block in range(config.n_layer):
            for ours, theirs in BLOCK.items():
                tensor = state[f"transformer.h.{block}.{ours}.{end}"]
                add(f"blk.{block}.{theirs}.{end}", tensor.T if tensor.dim() == 2 else tensor)  # a Conv1D is (in, out)
    add("output.weight", loaded.model.get_output_embeddings().weight)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def _add_tokenizer(file: Any, tokenizer: Path) -> None:
    """Add the tokens and merges of a byte-level BPE in GPT-2's manner; its special tokens end a text."""
    import gguf

    whole = json.loads(tokenizer.read_text(encoding="utf-8"))
    bpe, special = whole["model"], {token["content"]: token["id"] for token in whole["added_tokens"]}
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    kinds = (gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(tokens)
    file.add_token_types(list(kinds))
    file.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    file.add_eos_token_id(next(iter(special.values())))
    file.add_add_bos_token(False)


def decoded(path: Path, prompt: torch.Tensor, new_tokens: int) -> Callable[[], tuple[list[int], list[float]]]:
    """Open the file and return a function that decodes greedily: (its tokens, the seconds of each step)."""
    import llama_cpp as ll

    ll.llama_log_set(_silent, None)
    ll.llama_backend_init()
    options = ll.llama_context_default_params()
    options.n_ctx = prompt.shape[1] + new_tokens
    options.n_batch = options.n_ubatch = prompt.shape[1]
    options.n_threads = options.n_threads_batch = torch.get_num_threads()
    options.type_k = options.type_v = ll.GGML_TYPE_F32
    model = ll.llama_model_load_from_file(str(path).encode(), ll.llama_model_default_params())
    context = ll.llama_init_from_model(model, options)
    assert context, "llama.cpp refuses the file"
    vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))

    def best(ids: list[int]) -> int:
        tokens = (ll.llama_token * len(ids))(*ids)
        assert ll.llama_decode(context, ll.llama_batch_get_one(tokens, len(ids))) == 0
        logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(context, -1), (vocab,))
        return int(logits.argmax())

    def call() -> tuple[list[int], list[float]]:
        ll.llama_memory_clear(ll.llama_get_memory(context), True)
        made, seconds, fed = [], [], prompt[0].tolist()
        for _ in range(new_tokens):
            start = time.perf_counter()
            fed = [best(fed)]
            seconds.append(time.perf_counter() - start)
            made += fed
        return made, seconds

    return call


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _silent(level: int, text: bytes, data: int | None) -> None:
    """Take the place of llama.cpp's own log."""
