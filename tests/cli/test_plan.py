"""`kvviz plan`: the verdict, the document, and what is refused."""

import pytest

from tests.models.gguf.writer import header, model

ASKED = ("plan", "llama-3.1-8b", "--card", "L40S", "--count", "2", "--context", "32k", "--dtype", "fp8")


def test_a_plan_as_text_and_as_a_document(kvviz):
    done = kvviz(*ASKED)
    document = kvviz(*ASKED, "--json").document
    assert done.status == 0 and done.out.startswith(document["sentence"]) and "It fits" in done.out
    assert document["asked"]["tokens"] == 32_768 and document["fits"] is True
    assert document["least_bytes"] < document["most_bytes"] <= document["budget_bytes"]
    assert {part["name"] for part in document["parts"]} >= {"weights", "KV cache", "activations"}
    assert [option["weights"] for option in document["options"]] == ["bfloat16"] * 2 + ["fp8"] * 2 + ["int4"] * 2


def test_what_does_not_fit_has_changes_that_would(kvviz):
    out = kvviz("plan", "llama-3.1-70b", "--card", "L40S", "--context", "32k").out
    assert "It does not fit" in out and "What would make it fit:" in out and "then fit" in out


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("h100-sxm or h100-pcie", ("--card", "h100")),
        ("--context is '8kk'", ("--context", "8kk")),
        ("3 cards, and there are 1", ("--tensor-parallel", "3")),
        ("--offload is -1", ("--offload", "-1")),
        ("--params is 0", ("--params", "0")),
        ("attention is 'flash'", ("--attention", "flash")),
    ],
)
def test_refuses_in_a_sentence(refused, words, arguments):
    refused(words, "plan", "llama-3.1-8b", *arguments)


def test_a_gguf_files_weights_are_exact_and_llama_cpp_holds_them(kvviz, tmp_path):
    keys = {"block_count": 2, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": 2}
    path = tmp_path / "tiny.gguf"
    tensors = [("token_embd.weight", (256, 512), 12, 0)]
    path.write_bytes(header(model("llama", {**keys, "vocab_size": 512, "feed_forward_length": 512}), tensors))
    document = kvviz("plan", str(path), "--card", "24GB", "--context", "1k", "--json").document
    assert document["asked"]["view"] == "llama.cpp" and document["asked"]["dtype"] == "float16"
    weights = next(part for part in document["parts"] if part["name"] == "weights")
    assert weights["most"] == 256 * 512 // 256 * 144 and weights["says"] == "as the file states them"
