"""`kvviz plan`: the verdict, the document, and what is refused."""

import pytest

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
