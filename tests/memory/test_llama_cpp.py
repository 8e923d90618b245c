"""The view of llama.cpp against llama.cpp itself: what it printed for a header of each architecture, in seven starts.

`llama_cpp.json` has what the engine printed, and the keys of the headers that it was given.
"""

import io
import json
from pathlib import Path

import pytest

from kvviz.base.errors import ConfigError
from kvviz.memory.formula import kv_memory
from kvviz.memory.llama_cpp import LlamaCpp
from kvviz.models.gguf.config import FAMILIES, config_of
from kvviz.models.gguf.header import read_header
from kvviz.models.spec import ModelSpec
from tests.models.gguf.writer import header, model

PRINTED = json.loads(Path(__file__).with_name("llama_cpp.json").read_text())
KEYS, SETTINGS, ARCHITECTURES = PRINTED["keys"], PRINTED["settings"], PRINTED["architectures"]


def spec_of(arch):
    keys = {**KEYS, **ARCHITECTURES[arch]["keys"]}
    metadata = {"general.architecture": arch, **{f"{arch}.{name}": value for name, value in keys.items()}}
    return ModelSpec.from_config(config_of(read_header(io.BytesIO(header(metadata)))))


def memory_in(spec, start):
    same = {name: start[name] for name in ("flash_attention", "swa_full", "unified", "ubatch")}
    options = LlamaCpp("" if start["values"] == start["keys"] else start["values"], **same)
    case = {"batch": start["sequences"], "dtype": start["keys"], "view": "llama.cpp", "llama_cpp": options}
    return kv_memory(spec, start["context"] // start["sequences"], **case)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_as_llama_cpp_prints_it(arch):
    spec = spec_of(arch)
    for start, printed in zip(SETTINGS, ARCHITECTURES[arch]["mib"], strict=True):
        if printed is None:
            with pytest.raises(ConfigError, match=r"llama\.cpp"):
                memory_in(spec, start)
            continue
        parts = [float(part) for part in printed.split(" + ")]
        ours = memory_in(spec, start).reserved_bytes / 2**20
        assert ours == pytest.approx(sum(parts), abs=0.0051 * len(parts)), start


@pytest.mark.parametrize(
    ("arch", "keys", "tokens", "dtype", "nbytes"),
    [
        ("qwen2", (28, 3584, 28, 4), 2048, "f16", 117_440_512),  # Qwen2.5-7B
        ("llama", (32, 4096, 32, 8), 2048, "f16", 268_435_456),  # Llama-3-8B, and Mixtral-8x7B
        ("llama", (80, 8192, 64, 8), 2048, "f16", 671_088_640),  # Llama-3-70B
        ("deepseek2", (61, 7168, 128, 1), 32768, "q8_0", 1_223_294_976),  # DeepSeek-V3-0324
    ],
)
def test_published_logs_from_the_headers_of_their_files(arch, keys, tokens, dtype, nbytes):
    """What llama.cpp printed for published files, by people: KV self size = 112.00 MiB, ..."""
    names = ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv")
    latent = {"attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512}
    latent |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    metadata = model(arch, {**dict(zip(names, keys, strict=True)), **(latent if arch == "deepseek2" else {})})
    spec = ModelSpec.from_config(config_of(read_header(io.BytesIO(header(metadata)))))
    assert kv_memory(spec, tokens, dtype=dtype, view="llama.cpp").reserved_bytes == nbytes


def test_nearly_every_architecture_that_is_read_was_tried():
    assert FAMILIES.keys() - ARCHITECTURES.keys() == {"chameleon", "grok"}  # llama.cpp itself refused these headers


def test_options_of_llama_cpp_belong_to_its_view():
    with pytest.raises(ConfigError, match="take the view llama"):
        kv_memory(spec_of("llama"), 10, llama_cpp=LlamaCpp(swa_full=True))


@pytest.mark.parametrize(
    ("arch", "dtype", "options", "says"),
    [
        ("llama", "f16", LlamaCpp("q8_0", flash_attention=False), "only with flash attention"),
        ("deepseek2", "q8_0", LlamaCpp("f16"), "latent rows in one type"),
        ("llama", "f16", LlamaCpp("int8"), "has no cache in int8"),
    ],
)
def test_what_llama_cpp_would_not_start_with_is_refused(arch, dtype, options, says):
    with pytest.raises(ConfigError, match=says):
        kv_memory(spec_of(arch), 10, dtype=dtype, view="llama.cpp", llama_cpp=options)
