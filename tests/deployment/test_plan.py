"""Plans: the parts of a card, how many sequences fit, what to change, and the inverse question."""

from dataclasses import replace

import pytest

from kvviz.base.errors import ConfigError
from kvviz.deployment.cards import card_named
from kvviz.deployment.plan import Asked, by_sequences, on_every_card, options, plan, short
from kvviz.deployment.weights import Sharing, read_weights
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import accelerators, model_row, models
from kvviz.models.spec import ModelSpec
from tests.draws import spread

L40S = Asked("L40S", 2, 32_768, dtype="fp8")


def planned(model, asked):
    row = model_row(model)
    return plan(row.config, asked, name=model, params=row.params)


def part(found, name):
    return next(part for part in found.parts if part.name == name)


def test_a_plan_in_a_line():
    found = planned("llama-3.1-8b", L40S)
    start = "2 x NVIDIA L40S, bfloat16 weights, fp8 KV, tensor parallel 2, 32k context, "
    assert found.fits is True and found.sentence == f"{start}{found.sequences:,} sequences"


def test_the_parts_are_the_formulas():
    found = planned("llama-3.1-8b", replace(L40S, sequences=14))
    row = model_row("llama-3.1-8b")
    assert part(found, "weights").most == row.params  # 2 bytes each, on two cards
    cache = kv_memory(ModelSpec.from_config(row.config), 32_768, batch=14, dtype="fp8", view="vllm", tensor_parallel=2)
    assert part(found, "KV cache").most == cache.reserved_bytes
    assert found.budget_bytes == int(0.92 * accelerators()["l40s"].memory_bytes)


def test_one_sequence_more_does_not_fit():
    most = planned("llama-3.1-8b", L40S).sequences
    assert [planned("llama-3.1-8b", replace(L40S, sequences=count)).fits for count in (most, most + 20)] == [
        True,
        False,
    ]
    between = planned("llama-3.1-8b", replace(L40S, sequences=most + 1))
    assert between.fits is None and most + 1 <= between.most_sequences[1]


def test_the_longest_context_fits_and_one_more_token_does_not():
    asked = Asked("rtx-4090", 1, 8192, sequences=2, view="hf-dynamic")
    found = planned("qwen3-4b", asked)
    fits = [planned("qwen3-4b", replace(asked, tokens=found.context + more)).fits for more in (0, 1)]
    assert fits[0] is True and fits[1] is not True


def test_a_context_beyond_the_models_own_is_said():
    found = planned("gpt2", Asked("l40s", 1, 512, sequences=1, view="hf-dynamic"))
    assert found.beyond and found.trained == 1024 < found.context
    notes = planned("gpt2", Asked("l40s", 1, 2048, sequences=1, view="hf-dynamic")).notes
    assert any("made for 1,024 tokens" in note for note in notes)


def test_every_change_makes_it_fit():
    found = planned("qwen3-30b-a3b", Asked("rtx-4090", 1, 32_768))
    assert found.fits is False and len(found.changes) >= 2
    for change in found.changes:
        assert planned("qwen3-30b-a3b", replace(change.asked, sequences=change.sequences)).fits is True, change.sentence
        assert change.sentence.endswith(".") and f"{change.sequences:,} sequence" in change.sentence


def test_what_a_card_holds_grows_as_bits_shrink():
    row = model_row("llama-3.1-8b")
    found = {(o.weights, o.dtype): o for o in options(row.config, Asked("rtx-4090"), params=row.params)}
    assert found["int4", "fp8"].sequences > found["fp8", "fp8"].sequences > found["bfloat16", "bfloat16"].sequences > 0
    assert found["bfloat16", "fp8"].context == 2 * found["bfloat16", "bfloat16"].context
    assert found["int4", "fp8"].beyond and not found["bfloat16", "bfloat16"].beyond


def test_stages_copies_and_experts_share_the_weights():
    row = model_row("qwen3-30b-a3b")
    weights = read_weights(row.config, row.params, "bfloat16")
    whole = Sharing().of_one_card(weights, 48)
    assert whole == weights.nbytes
    assert Sharing(tensor=2).of_one_card(weights, 48) == whole / 2 == Sharing(pipeline=2).of_one_card(weights, 48)
    copies, spread = (Sharing(data=8, experts=experts).of_one_card(weights, 48) for experts in (False, True))
    assert copies == whole and spread == pytest.approx(whole - 2 * weights.experts * 7 / 8)


def test_llama_cpp_shares_by_layers_and_engines_by_heads():
    asked = Asked("rtx-3090", 2, 8192, 1, "float16", view="llama.cpp")
    assert (asked.sharing.tensor, asked.sharing.pipeline) == (1, 2)
    found = planned("llama-3.1-8b", asked)
    assert "pipeline stages 2" in found.sentence
    assert part(found, "KV cache").most == 2**29  # half of the layers
    assert replace(asked, view="vllm").sharing.tensor == 2


def test_offloaded_weights_leave_room_for_sequences():
    asked = Asked("rtx-4090", 1, 8192)
    more = planned("llama-3.1-8b", replace(asked, offload_bytes=4 * 2**30)).sequences
    assert more == planned("llama-3.1-8b", asked).sequences + 4  # 4 GiB, and 1 GiB of cache each


def test_parameters_that_nobody_states_are_counted_or_asked_for():
    large = [row for row in models().values() if row.params > 10**9 and "tie_word_embeddings" in row.config]
    for row in spread(large, 12):
        try:
            counted = read_weights(row.config, None, "bfloat16")
        except ConfigError as error:
            assert "--params" in str(error), row.id
        else:
            assert counted.counted and counted.params == pytest.approx(row.params, rel=0.004), row.id


def test_a_card_by_name_by_memory_or_not():
    assert card_named("L40S").id == card_named("nvidia l40s").id == "l40s"
    assert card_named("RTX 4090").id == "rtx-4090" and card_named("48GB").memory_bytes == 48 * 10**9
    for name, words in (("h100", "h100-sxm or h100-pcie"), ("l50", "near ones are"), ("0GB", "no memory")):
        with pytest.raises(ConfigError, match=words):
            card_named(name)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (replace(L40S, tensor=3), "are 3 cards, and there are 2"),
        (replace(L40S, count=0), "count is 0"),
        (replace(L40S, utilization=1.5), "utilization is 1.5"),
        (replace(L40S, view="sqlite"), "view is 'sqlite'"),
        (replace(L40S, tensor=1, pipeline=2, tokens=0), "tokens is 0"),
    ],
)
def test_refuses_in_a_sentence(asked, words):
    with pytest.raises(ConfigError, match=words):
        planned("llama-3.1-8b", asked)


def test_tokens_as_people_write_them():
    assert (short(32_768), short(1000), short(131_072)) == ("32k", "1,000", "128k")


def test_a_chunk_that_is_given_back_does_not_hide_what_it_took():
    """Llama 4 in vLLM takes less just behind a chunk of 8,192 tokens than just before its end."""
    asked = Asked("h100-sxm", 4, weights="int4", sequences=1, utilization=1.0)
    row = model_row("llama-4-scout")
    spec, shared = ModelSpec.from_config(row.config), {"view": "vllm", "tensor_parallel": 4}
    peak, after = (kv_memory(spec, n, **shared).reserved_bytes for n in (16_384, 16_385))
    whole = planned("llama-4-scout", replace(asked, tokens=16_385))
    kept = part(whole, "KV cache")
    assert kept.most == peak > after and kept.says.endswith("on the way there")
    between = whole.most - (peak - after) // 2
    tight = replace(asked, tokens=16_385, utilization=between / whole.card.memory_bytes)
    found = planned("llama-4-scout", tight)
    every = on_every_card(row.config, tight, params=row.params)
    alike = next(each for each in every if each.card.id == "h100-sxm")
    assert found.fits is alike.fits is None and found.most_sequences[0] == alike.sequences == 0
    assert found.context < 16_384


def test_a_tied_table_lies_whole_on_the_first_and_on_the_last_stage():
    row, other = model_row("gemma-3-4b"), model_row("llama-3.1-8b")
    tied, untied = (read_weights(each.config, each.params, "bfloat16") for each in (row, other))
    assert tied.tied and not untied.tied
    halves = tied.nbytes / 2 + tied.tables
    assert Sharing(pipeline=2).of_one_card(tied, 34) == pytest.approx(halves)
    assert Sharing(pipeline=2).of_one_card(untied, 32) == untied.nbytes / 2


@pytest.mark.parametrize(
    ("model", "asked", "words", "said"),
    [
        ("llama-3.1-8b", Asked(view="sglang"), "What share of a card this engine takes is not known", True),
        ("llama-3.1-8b", Asked(view="sglang", utilization=0.9), "What share of a card this engine takes", False),
        ("llama-3.1-8b", Asked(), "What share of a card this engine takes", False),
        ("deepseek-v3", Asked(count=16, weights="fp8"), "they were not measured on a GPU", True),
        ("llama-3.1-8b", Asked(), "not measured on a GPU", False),
        ("falcon-7b", Asked(), "off by a fifth either way", True),
    ],
)
def test_what_is_not_known_is_said(model, asked, words, said):
    assert any(words in note for note in planned(model, asked).notes) is said


def test_every_card_is_answered_as_it_is_alone():
    row, asked = model_row("gemma-3-4b"), Asked(tokens=131_072, sequences=4, beams=2)
    every = on_every_card(row.config, asked, params=row.params)
    assert [each.card.id for each in every] == list(accelerators())
    assert {each.fits for each in every} >= {True, False}
    for each in spread(every, 2):
        alone = planned("gemma-3-4b", replace(asked, card=each.card.id))
        assert (each.fits, each.sequences, each.context) == (alone.fits, alone.most_sequences[0], alone.context)
    one = planned("gemma-3-4b", replace(asked, beams=1))
    assert part(one, "KV cache").most * 2 == part(planned("gemma-3-4b", asked), "KV cache").most


@pytest.mark.parametrize("view", ["architecture", "vllm", "llama.cpp"])
def test_the_largest_number_that_fits_lies_below_the_card_and_the_next_above(view):
    row, asked = model_row("llama-3.1-8b"), Asked(view=view, dtype="float16")
    filled = by_sequences(row.config, asked, params=row.params)
    found = planned("llama-3.1-8b", asked)
    certain, possible = found.most_sequences
    fits = {each.sequences: each.fits for each in filled}
    assert (fits[certain], fits[certain + 1]) == (True, None) and list(fits)[-1] == possible + 1
    assert filled[-1].fits is False and {1, 2, 4, 8, 16, 32} <= set(fits)
    last, following = (
        sum(part.most for part in each.parts) for each in filled if each.sequences in (certain, certain + 1)
    )
    assert last <= found.budget_bytes < following
    for each in filled[:2]:
        assert each.parts == planned("llama-3.1-8b", replace(asked, sequences=each.sequences)).parts
    together = {part.most for each in filled[:4] for part in each.parts if part.name == "activations"}
    assert (len(together) > 1) == (view != "vllm"), "llama.cpp's decode step takes all sequences at once"


def test_of_a_model_that_does_not_fit_one_sequence_is_counted():
    row = model_row("llama-3.1-70b")
    assert [(each.sequences, each.fits) for each in by_sequences(row.config, Asked(), params=row.params)] == [
        (1, False)
    ]
