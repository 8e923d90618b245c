"""The reader of GGUF headers: what the package gguf writes, and everything that nobody should write."""

import io
import random
import struct
import tracemalloc

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from kvviz.base.errors import KvvizError
from kvviz.models.gguf.config import config_of, weights_in
from kvviz.models.gguf.header import CutOff, read_header
from kvviz.models.spec import ModelSpec
from tests.models.gguf.writer import ARRAY, STRING, header, key, model, text

SMALL = header({**model(), "tokenizer.ggml.tokens": ["a", "bc"]}, [("w", (64, 2), 0, 0), ("v", (32,), 8, 512)])


def read(data):
    return read_header(io.BytesIO(data))


# --- headers of the package gguf ----------------------------------------------------------------------------------

HEADS = {"attention.head_count": 8, "attention.head_count_kv": 2, "attention.key_length": 64}
LATENT = {
    "attention.key_length": 96, "attention.value_length": 64, "attention.kv_lora_rank": 64,
    "attention.key_length_mla": 96, "attention.value_length_mla": 64, "attention.head_count": 8,
    "attention.head_count_kv": 1,
}  # fmt: skip
STATES = {"ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 32}
GATED = {**STATES, "ssm.time_step_rank": 8, "ssm.group_count": 4}
# An architecture, its keys, and the family and kinds of layers that they stand for.
WRITTEN = [
    ("llama", HEADS, "llama", {"full"}),
    ("llama", {**HEADS, "expert_count": 8, "expert_used_count": 2}, "mixtral", {"full"}),
    ("qwen3", HEADS, "qwen3", {"full"}),
    ("gemma3", {**HEADS, "attention.sliding_window": 512}, "gemma3_text", {"sliding", "full"}),
    ("gpt-oss", {**HEADS, "attention.sliding_window": 128}, "gpt_oss", {"sliding", "full"}),
    ("llama4", HEADS, "llama4_text", {"chunked", "full"}),
    ("deepseek2", LATENT, "deepseek_v3", {"latent"}),
    ("mamba", STATES, "mamba", {"linear"}),
    ("qwen3next", {**HEADS, **GATED}, "qwen3_next", {"linear", "full"}),
    ("jamba", {**HEADS, **STATES, "attention.head_count_kv": [0, 0, 0, 2, 0, 0, 0, 2]}, "jamba", {"linear", "full"}),
]
TENSORS = {"token_embd.weight": Type.Q6_K, "blk.0.ffn_up.weight": Type.Q4_K, "blk.0.attn_k.weight": Type.IQ4_NL}


@pytest.mark.parametrize(("arch", "keys", "family", "kinds"), WRITTEN)
def test_what_the_package_gguf_writes_is_read_back(tmp_path, arch, keys, family, kinds):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("A model")
    writer.add_block_count(8)
    writer.add_embedding_length(256)
    writer.add_context_length(4096)
    writer.add_token_list([f"token {i}" for i in range(300)])
    for name, value in keys.items():
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        add(f"{arch}.{name}", value)
    writer.add_tensor("output_norm.weight", np.zeros(256, np.float32))
    for name, kind in TENSORS.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor(name, np.zeros((5, 256 // block * size), np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with path.open("rb") as file:
        found = read_header(file)
    theirs = gguf.GGUFReader(path).tensors
    ours = [(each.name, each.elements, each.nbytes, each.type.name) for each in found.tensors]
    assert ours == [(each.name, each.n_elements, each.n_bytes, each.tensor_type.name) for each in theirs]
    config = config_of(found)
    weights, spec = weights_in(config), ModelSpec.from_config(config)
    assert weights.nbytes == sum(each.n_bytes for each in theirs)
    assert (config["model_type"], {layer.kind for layer in spec.layers}) == (family, kinds)
    assert (spec.vocab_size, spec.context, spec.decoder_layers) == (300, 4096, 8)


def test_tensor_types_are_those_of_the_package():
    """But for Q8_1, which no file has: ggml's block_q8_1 has 36 bytes, and this version of the package says 40."""
    for kind in set(Type) - {Type.Q8_1}:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        (found,) = read(header(model(), [("w", (3 * block,), int(kind), 0)])).tensors
        assert (found.type.name, found.nbytes) == (kind.name, 3 * size)


def test_nothing_behind_the_header_is_read():
    file = io.BytesIO(SMALL + b"\xff" * 10_000)
    assert [each.nbytes for each in read_header(file).tensors] == [512, 34]
    assert file.tell() == len(SMALL)


# --- what nobody should write -------------------------------------------------------------------------------------

ONE = header({"general.architecture": "llama"}, counts=(0, 2))  # a second key follows
LIST = ONE + text("list") + struct.pack("<I", ARRAY)
HOSTILE = {
    "no GGUF file": b"PK\x03\x04",
    "is no GGUF file: it begins with ''": b"",
    "its version is 1": header({}, version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "states 9,223,372,036,854,775,808 tensors": header({}, counts=(2**63, 0)),
    "states 18,446,744,073,709,551,615 keys": header({}, counts=(0, 2**64 - 1)),
    "a key has 4,294,967,296 bytes": header({}, counts=(0, 1)) + struct.pack("<Q", 2**32),
    "a value of 4,294,967,296 bytes": ONE + text("key") + struct.pack("<IQ", STRING, 2**32),
    "a value of 9,223,372,036,854,775,808 bytes": LIST + struct.pack("<IQ", 12, 2**60),
    "lists 4,294,967,296 texts": LIST + struct.pack("<IQ", STRING, 2**32),
    "lists a text of 1,099,511,627,776 bytes": LIST + struct.pack("<IQQ", STRING, 3, 2**40),
    "is a list of lists": LIST + struct.pack("<IQ", ARRAY, 2**40) * 2,
    "is a list of type 99": LIST + struct.pack("<IQ", 99, 1),
    "is of type 13": ONE + text("key") + struct.pack("<I", 13),
    "the key 'general.architecture' occurs twice": ONE + key("general.architecture", "llama"),
    "general.alignment is 0": header({**model(), "general.alignment": 0}),
    "general.alignment is 48": header({**model(), "general.alignment": 48}),
    "a tensor's name has 65 bytes": header(model(), [("n" * 65, (1,), 0, 0)]),
    "has 5 dimensions": header(model(), [("w", (1,) * 5, 0, 0)]),
    "is of type 4;": header(model(), [("w", (1,), 4, 0)]),
    "rows of 33 elements": header(model(), [("w", (33,), 8, 0)]),
    "elements, which no model's has": header(model(), [("w", (2**63,) * 4, 0, 0)]),
    "the tensor 'w' occurs twice": header(model(), [("w", (8,), 0, 0), ("w", (8,), 0, 32)]),
    "begins at byte 64 of the data; after those before it that is 32": header(
        model(), [("w", (8,), 0, 0), ("v", (8,), 0, 64)]
    ),
    "ends inside its GGUF header": SMALL[:-1],
}


@pytest.mark.parametrize("says", HOSTILE)
def test_what_is_no_header_is_one_sentence_and_takes_no_memory(says):
    tracemalloc.start()
    try:
        with pytest.raises(KvvizError) as error:
            read(HOSTILE[says])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert says in str(error.value) and "\n" not in str(error.value)
    assert peak < 2**20


def test_lists_that_no_model_has_are_not_kept():
    whole = {f"key.{i}": [70_000 + i] * 2_000 for i in range(150)}
    assert len(read(header({**model(), **whole})).metadata) == len(model()) + 100


def test_cut_off_at_every_byte():
    for size in range(4, len(SMALL)):
        with pytest.raises(CutOff, match=f"after {size:,} bytes; give at least the first 32 MiB"):
            read(SMALL[:size])


def understood(data):
    """Whether a header is read down to its layers; anything but a sentence fails."""
    try:
        ModelSpec.from_config(config_of(read(data)))
    except KvvizError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return False
    return True


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_damaged_header_is_read_or_refused_in_a_sentence(count):
    """Some bytes of a right header are replaced, by any, by numbers at the limits, or by another part of it."""
    chance = random.Random(count)
    whole = [header(model(arch, keys), [("w", (32,), 0, 0)]) for arch, keys, *_ in WRITTEN]
    numbers = [struct.pack("<Q", n) for n in (0, 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)]
    read_anyway = 0
    for _ in range(count):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(4, len(data))
            part = chance.choice([bytes([chance.randrange(256)]), chance.choice(numbers), data[place - 4 : place + 9]])
            at = chance.randrange(4, len(data))
            data[at : at + len(part) * chance.randint(0, 1)] = part
        read_anyway += understood(bytes(data))
    assert 0 < read_anyway < count
