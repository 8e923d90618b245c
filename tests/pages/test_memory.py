"""The memory page as Streamlit runs it, without a browser: form, link, examples, pasted configs, refusals."""

import base64
import json
import re
from functools import partial
from types import SimpleNamespace

import pytest

from kvviz.base.precision import WEIGHT_BITS, precision
from kvviz.decoding import meta_probe
from kvviz.experiments.comparison.figures import HEADLINE
from kvviz.memory.calculator import Asked, pack
from kvviz.models.catalog.rows import models
from tests.models.gguf.writer import header, model
from tests.pages.conftest import charts, said

pytestmark = pytest.mark.slow
RATIO = "ratio to LLaMA 3.1-8B"  # a column


@pytest.fixture
def visit(open_page):
    """Open the page with the parts of a link."""
    return partial(open_page, "memory")


@pytest.fixture
def visit_tab(visit):
    """Open the page on one of its tabs."""

    def opened(tab, **link):
        app = visit(**link)
        app.session_state["m_tab"] = tab
        return app.run()

    return opened


def table(app, column):
    """The first table that has a column."""
    return next(frame.value for frame in app.dataframe if column in frame.value.columns)


def headline(app):
    """The sentences above the formula."""
    return next(words.value for words in app.markdown if words.value.startswith("**The KV cache of "))


def total(app):
    return re.search(r" takes ([\d.]+ \w+)\.\*\*", headline(app))[1]


def exact(app):
    """The formula of the total, as one reads it."""
    return app.latex[0].value.replace("{,}", ",")


def test_the_default_compares_three_models(visit):
    app = visit()
    assert total(app) == "1.0 GiB" and "1,073,741,824" in exact(app)
    assert "1,073,741,824" not in said(app), "once is enough"
    assert headline(app) == (
        "**The KV cache of LLaMA 3.1-8B takes 1.0 GiB.** Each further token adds 128.0 KiB; "
        "all of it is 6.7% of the weights, which take 15.0 GiB."
    )
    assert "**With 8 KV heads instead of 32, LLaMA 3.1-8B keeps a quarter of the cache**" in said(app)
    assert f"[the model's config]({models()['llama-3.1-8b'].source})" in said(app)
    compared = table(app, RATIO)
    each = ["2 × 8 KV heads × 128 = 2,048", "2 × 32 KV heads × 128 = 8,192", "512 + 64 = 576"]
    assert list(compared["numbers per token and layer"]) == each
    as_mha = ["2 × 32 × 128 = 8,192, 4 times as many", "the same", "128 heads × (192 + 128) = 40,960, 71 times as many"]
    assert list(compared["if every query head had its own KV head"]) == as_mha
    assert list(compared["KV cache"]) == ["1.0 GiB", "4.0 GiB", "0.54 GiB"], "in one unit, as in the chart's title"
    exactly = table(app, "bytes")
    assert list(exactly["bytes"]) == [2**30, 2**32, 575_668_224]
    assert not {"constant", "held by full windows", "reserved"} & set(exactly), "they say nothing here"
    assert app.query_params["models"] in (",".join(Asked().models), [",".join(Asked().models)])


def test_a_model_with_windows_is_explained_by_its_factors(visit):
    app = visit(models="llama-3.1-8b,gemma-3-12b")
    compared = table(app, RATIO)
    assert list(compared["layers"]) == ["32 full attention", "40 sliding, 8 full attention"]
    assert "held by full windows" in table(app, "bytes")
    assert (
        "**Gemma 3-12B** takes 0.81 times the bytes of LLaMA 3.1-8B: 0.27 (only a window kept in 40 of 48 layers) × 2 ("
        in said(app)
    )


def test_windows_that_are_full_are_said_to_grow_no_more(visit):
    words = said(visit(models="gemma-3-27b", batch="3"))
    assert "**In Gemma 3-27B, 10 of 62 layers go on growing with the text, by 240.0 KiB a token**" in words


def test_transformers_copies_of_falcons_heads_are_no_saving(visit):
    app = visit(models="falcon-40b", view="hf-dynamic")
    assert list(table(app, "layers")["numbers per token and layer"]) == ["2 × 128 KV heads × 64 = 16,384"]
    assert charts(app)[0]["data"][0]["name"] == "Falcon-40B<br>MHA"


def test_a_view_that_reserves_says_so_at_the_axis(visit):
    app = visit(models="llama-3.1-8b", view="vllm", tokens="3000")
    assert charts(app)[0]["layout"]["yaxis"]["title"]["text"].startswith("reserved, ")
    assert list(table(app, "bytes")["reserved"]) == ["376.0 MiB"]


def test_a_link_restores_the_whole_form(visit):
    app = visit(models="qwen3-4b,gpt2", tokens="32768", batch="2", dtype="float32", view="hf-dynamic")
    assert (app.selectbox(key="m_family").value, app.selectbox(key="m_model").value) == ("Qwen", "qwen3-4b")
    assert app.number_input(key="m_tokens").value == 32_768
    assert f"{2 * 32768 * 36 * 2 * 8 * 128 * 4:,}" in exact(app)


@pytest.mark.slow
def test_the_link_follows_the_form(visit):
    app = visit()
    app.selectbox(key="m_family").select("GPT-2").run()
    app.number_input(key="m_tokens").set_value(1024).run()
    assert not app.exception
    found = {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}
    assert found["tokens"] == "1024" and found["models"].startswith("gpt2,")
    assert total(app) == "36.0 MiB"


@pytest.mark.slow
def test_each_example_fills_the_form_and_shows_its_cases(visit):
    app = visit()
    next(group for group in app.get("button_group") if group.key == "m_example").set_value("three-sizes").run()
    assert not app.exception
    rows = table(app, "cache, B")
    assert len(rows) == 9 and 4 * 2**30 in set(rows["cache, B"])
    assert app.number_input(key="m_tokens").value == 8192


@pytest.fixture
def give(visit, monkeypatch):
    """`give(app, text)` or `give(app, name=…, data=…)`: the page after a browser has sent that."""

    def given(app=None, text="", *, name="", data=b""):
        sent = {"name": name, "bytes": base64.b64encode(data).decode()} if name else {"text": text}
        app = app or visit()
        with monkeypatch.context() as once:
            once.setattr("kvviz.ui.memory.form._box", lambda **_: SimpleNamespace(given=sent))
            app.run()
        assert not app.exception
        return app

    return given


def captions(app):
    return [caption.value for caption in app.caption]


@pytest.mark.slow
def test_a_pasted_config_is_worked_out(give):
    app = give(text=json.dumps(models()["deepseek-v3"].config))
    assert "Taken as the config of a model of type deepseek_v3." in captions(app)
    assert f"{8192 * 70_272:,}" in exact(app)
    assert "kv_lora_rank" in said(app)
    app.selectbox(key="m_family").select("GPT-2").run()
    assert "Yours" in app.selectbox(key="m_family").options, "it can be taken again"


def test_the_addresses_of_several_models_stand_side_by_side(give):
    app = give(text="https://huggingface.co/Qwen/Qwen3-4B vs deepseek-v3")
    assert "Taken as the model qwen3-4b of the catalog, the model deepseek-v3 of the catalog." in captions(app)
    assert app.selectbox(key="m_model").value == "qwen3-4b"
    assert list(table(app, "ratio to Qwen3-4B")["model"]) == ["Qwen3-4B", "DeepSeek-V3"]


def test_a_dropped_gguf_file_is_worked_out_as_llama_cpp_runs_it(give):
    keys = {"block_count": 32, "embedding_length": 4096, "attention.head_count": 32, "attention.head_count_kv": 8}
    app = give(name="small.gguf", data=header(model("llama", keys), [("w", (256, 9), 12, 0)]))
    assert total(app) == "1.0 GiB" and "The KV cache of small.gguf (yours) takes" in headline(app)
    assert "Weights in the file: **1.3 KiB** (1,296 B): 1.3 KiB Q4_K" in said(app)
    assert (app.selectbox(key="m_view").value, app.selectbox(key="m_dtype").value) == ("llama.cpp", "float16")
    assert app.number_input(key="m_ubatch").value == 512
    app.selectbox(key="m_dtype").select("q8_0").run()
    app.selectbox(key="m_values").select("q4_0").run()
    assert f"{8192 * 32 * 8 * 128 // 32 * (34 + 18):,}" in exact(app)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("x.gguf", b"GGUF\3", "ends inside its GGUF header"),
        ("x.gguf", b"zip", "is no GGUF file"),
        ("x.json", b"[]", "holds no JSON object"),
        ("x.json", b" " * 9_000_000, "takes at most"),
    ],
)
def test_a_dropped_file_that_can_not_be_read_is_one_sentence_and_nothing_is_lost(give, name, data, says):
    app = give(name=name, data=data)
    assert total(app) == "1.0 GiB"
    assert any(says in warning.value for warning in app.warning)


@pytest.mark.slow
def test_a_config_that_can_not_be_read_is_one_sentence(visit, give):
    app = visit()
    for text, says in (
        ("{not json", "can't be read as JSON"),
        ("[1]", "JSON object"),
        ('{"model_type": "llama", "num_hidden_layers": -1}', "num_hidden_layers"),
        ('{"model_type": "bert", "num_hidden_layers": 2}', "is an encoder"),
        ('{"model_type": "own", "auto_map": {}, "num_layers": 28, "attn_type_list": [1]}', "attn_type_list"),
        ('{"model_type": "gpt2", "n_layer": 2, "n_head": NaN}', "n_head"),
    ):
        give(app, text)
        assert any(says in warning.value for warning in app.warning), text


def test_a_link_with_a_config_of_ones_own(visit):
    app = visit(
        models=pack({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2})
    )
    assert app.selectbox(key="m_family").value == "Yours"
    assert f"{8192 * 2 * 2 * 64 * 2:,}" in exact(app)


def test_a_broken_link_says_what_and_goes_on(visit):
    app = visit(models="nope", tokens="many")
    assert len(app.warning) == 2 and total(app) == "1.0 GiB"


def test_a_link_beyond_what_the_widgets_take_becomes_the_most_that_they_take(visit):
    most = {"tokens": 2**30, "batch": 100_000, "beams": 64, "tensor_parallel": 64, "source_tokens": 2**30}
    app = visit(**{name: str(count + 1) for name, count in most.items()})
    assert {name: app.number_input(key=f"m_{name}").value for name in most} == most


def test_a_change_is_signed_and_the_model_itself_is_named(visit_tab):
    app = visit_tab("What if", models="llama-3.1-8b")
    assert any("**Quantizing the weights changes none of this**" in words.value for words in app.markdown)
    rows = table(app, "idea").set_index("idea")
    assert rows.loc["As it is: GQA, 8 KV heads", "as a factor"] == "1.0×"
    assert rows.loc["MHA", "more or less"].startswith("+") and rows.loc["MQA", "more or less"].startswith("−")
    assert rows.loc["MQA", "as a factor"] == "0.13×", "not 0.12"


def test_ideas_are_bars_in_two_groups_the_smallest_first(visit_tab):
    app = visit_tab("What if", models="llama-3.1-8b", opened=set())
    assert (
        "**Trained with MQA, the model would keep an eighth of the bytes; with its cache in nvfp4 or int4, 28%**"
        in said(app)
    )
    trained, stored = (chart["data"][0] for chart in charts(app))
    ideas = ["MQA", "Windows of 1,024 in 5 of 6 layers", "Latent rows", "Windows of 4,096", "MHA"]
    assert trained["y"] == ["As it is: GQA, 8 KV heads", *ideas] and trained["x"] == [1, 0.125, *trained["x"][2:5], 4]
    assert stored["y"] == ["As it is: bfloat16", "nvfp4", "int4", "fp8", "int8", "fp8_per_token_head", "float32"]
    assert stored["x"][1:] == sorted(stored["x"][1:])
    assert "llama.cpp's own 5: 0.28 to 0.53 times the bytes" in [box.label for box in app.expander]
    app.session_state["folds_opened"] = {"m_llama_cpp"}
    notes = [note["text"] for note in charts(app.run())[2]["layout"]["annotations"]]
    assert "<b>q8_0</b>: 34 bytes per 32 values" in notes and "544.0 MiB, 0.53×" in notes
    app.select_slider(key="m_groups_llama-3.1-8b").set_value(1).run()
    assert "32 query heads on **1** KV head (multi-query): **128.0 MiB**, 0.13× of what the model keeps" in said(app)
    ranges = {tuple(chart["layout"]["xaxis"]["range"]) for chart in charts(app)}
    assert ranges == {(0, 4)}, "equal bytes are equally long"
    only = charts(visit_tab("What if", models="mamba-130m"))
    assert [chart["data"][0]["y"] for chart in only] == [["As it is: bfloat16", "float32"]]


@pytest.mark.parametrize(
    ("model", "layers", "columns"),
    [
        ("llama-3.1-8b", ["0 to 31"], {"seen", "held", "keys", "values"}),
        ("deepseek-v3", ["0 to 60"], {"seen", "held", "keys", "values"}),
        ("gemma-3-4b", ["0 to 4", "5", "6 to 10"], {"window", "seen", "held", "keys", "values"}),
        ("jamba-v0.1", ["0 to 3", "4", "5 to 11"], {"seen", "held", "keys", "values", "state bytes"}),
        ("mamba-130m", ["0 to 23"], {"seen", "state bytes"}),
    ],
)
def test_layers_that_are_alike_share_a_row_and_empty_columns_are_left_out(visit_tab, model, layers, columns):
    app = visit_tab("By layer", models=model)
    rows = table(app, "layers")
    assert list(rows["layers"][:3]) == layers
    assert set(rows) == {"layers", "kind", "bytes each"} | columns
    assert rows["seen"][0] == "8,192" and " layers keep " in said(app)
    if model == "llama-3.1-8b":
        assert "**All 32 layers keep the same: 32.0 MiB each**" in said(app)
        assert rows["keys"][0] == "1 × 8 × 8,192 × 128"


def test_four_bits_of_a_weight_and_four_and_a_half_of_a_cached_value_are_explained(visit):
    int4 = precision("int4")
    assert (8 * int4.row(64, 1) / 64, WEIGHT_BITS["int4"]) == (4.5, 4)
    app = visit(models="gpt2")
    assert "int4 weights take 4 bits each, and values of an int4 cache take 4.5" in app.selectbox(key="m_weights").help
    assert int4.title in app.selectbox(key="m_dtype").help


def test_no_context_is_promised_that_the_model_was_not_made_for(visit_tab):
    app = visit_tab("On a GPU", models="llama-3.1-8b")
    name = "longest context of one sequence, tokens"
    for rows in (frame.value for frame in app.dataframe if name in frame.value.columns):
        assert max(int(row.replace(",", "")) for row in rows[name] if row != "none") == 131_072
    assert "131,072 tokens, for which the model was made (there is room for" in said(app)
    assert "does not say how long a context" in said(visit_tab("On a GPU", models="t5-small"))


def test_the_picture_of_a_card_is_the_plan(visit_tab):
    app = visit_tab("On a GPU", models="llama-3.1-8b", tokens="32768", batch="4", view="vllm", gpu="rtx-4090")
    words = said(app)
    assert "**It does not fit: a card needs" in words and "- 4 at once can grow to 4,288 tokens." in words
    assert "Take 4 cards: 4 sequences of 32k tokens then fit." in words
    drawn = charts(app)[0]["data"]
    assert [bar["name"] for bar in drawn][:3] == ["weights", "KV cache", "activations"]
    cache = next(bar for bar in drawn if bar["name"] == "KV cache")
    assert cache["hovertext"][cache["x"].index("4")] == "KV cache: 16.0 GiB (17,179,869,184 B)"
    key = next(block.proto.body for block in app.get("html") if "weights" in block.proto.body)
    assert "between its least and its most" in key
    assert set(table(app, "weights take")["cache"]) == {"bfloat16", "fp8"}
    words = said(visit_tab("On a GPU", models="llama-3.1-8b", batch="64"))
    assert (
        "**It does not fit: a card needs" in words and "\n- 32 sequences fit if all prompts are computed at " in words
    )


def test_the_chart_of_sequences_agrees_with_what_is_said_to_fit(visit_tab):
    app = visit_tab("On a GPU", models="llama-3.1-8b")
    words = said(app)
    assert (
        "**32 sequences fit if all prompts are computed at once: "
        "each brings a cache of 1.0 GiB, and 0.91 GiB of activations**" in words
    )
    assert (
        "As asked, it fits: a card needs 17.0 GiB to 18.7 GiB of the 79.6 GiB that may be used. "
        "One can grow to 131,072 tokens, for which the model was made (there is room for 269,747)." in words
    )
    assert "The library transformers computes all prompts at once." in words
    (drawn,) = charts(app)
    heights = zip(*(bar["y"] for bar in drawn["data"]), strict=True)
    tops = dict(zip(drawn["data"][0]["x"], map(sum, heights), strict=True))
    card = drawn["layout"]["shapes"][0]["y0"]
    assert tops["32"] <= card < tops["33"] < tops["34"]
    ticks = drawn["layout"]["xaxis"]["ticktext"]
    assert (ticks[0], ticks[-3:]) == ("1<br>as asked", ["32<br>fit", "33<br>perhaps", "34<br>no"])
    assert "(https://github.com/NVIDIA/nccl/issues/1264)" in words and ": https" not in words, "links are short"
    folds = [box.label for box in app.expander]
    assert "Other precisions: up to 52 sequences with int4 weights and a cache in fp8" in folds
    assert "Every card: it fits on 26 of 32, and up to 171 sequences do (Apple M3 Ultra, 512 GB)" in folds


def test_an_engine_computes_one_prompt_at_a_time_and_a_model_that_does_not_fit_is_drawn_as_asked(visit_tab):
    words = said(visit_tab("On a GPU", models="llama-3.1-8b", view="vllm"))
    assert "the activations stay at 932.1 MiB, because one prompt is computed at a time**" in words
    assert "computes all prompts at once" not in words
    app = visit_tab("On a GPU", models="deepseek-v3")
    assert [chart["layout"]["xaxis"]["ticktext"] for chart in charts(app)] == [["1<br>as asked, no"]]
    assert "**It does not fit: a card needs " in said(app) and "As asked" not in said(app)
    assert "Other precisions: not one sequence fits in any" in [box.label for box in app.expander]


def test_of_several_devices_the_chart_and_the_table_are_of_one(visit_tab):
    """Each of four H100s holds a quarter of a model that fits none of them whole."""
    alone, shared = (
        table(visit_tab("On a GPU", models="llama-3.1-70b", tensor_parallel=str(n)), "fits as asked") for n in (1, 4)
    )
    fits = [rows.set_index("accelerator")["fits as asked"] == "yes" for rows in (alone, shared)]
    assert fits[1].sum() > fits[0].sum() and (fits[1] >= fits[0]).all()


def test_all_published_figures_agree(visit_tab):
    app = visit_tab("How we know")
    assert "**84 of 90** agree within the rounding of what is printed; in 6 the source slips:" in said(app)
    slips = next(words.value for words in app.markdown if words.value.startswith("| figure |")).splitlines()[2:]
    assert slips[0].startswith(
        "| LLaMA-7B at 1,024 tokens | config: [arxiv.org](https://arxiv.org/abs/2302.13971) | 1–2 GB"
    )
    site = "[huggingface.co](https://huggingface.co/blog/llama31)"
    why = "Twice the size: it counts 16 KV heads where the released config has 8."
    assert slips[2] == f"| LLaMA 3.1-405B at 16,000 tokens | {site} | 15.38 GB\\* | 7.69 GiB | {why} |"
    assert slips[4].endswith(
        "| 340 GB | 40.00 GiB | It multiplies by the hidden size, as if all 64 query heads were cached; "
        "the model caches 8 KV heads. |"
    )
    assert len(slips) == 6 and "\\* This source's GB has 2³⁰ bytes, as a GiB has." in said(app)
    app.session_state["folds_opened"] = {"m_figures"}
    rows = table(app.run(), "kvviz, B")
    assert len(rows) == 84 and set(rows["agrees"]) == {"yes", "yes, by hand"}
    assert "Calculated from" not in said(app) and "Calculated from" in said(visit_tab("By layer"))


@pytest.mark.slow
def test_a_log_line_is_judged_and_again_when_the_form_changes(visit, give):
    app = visit(models="qwen2.5-7b")
    line = "llama_kv_cache_init: KV self size = 112.00 MiB, K (f16): 56.00 MiB, V (f16): 56.00 MiB"
    give(app, line)
    assert "Taken as lines of the log of llama.cpp." in captions(app)
    assert any("would agree for 2,048 tokens" in box.value for box in app.error)
    app.number_input(key="m_tokens").set_value(2048).run()
    assert any("agree" in box.value for box in app.success)
    give(app, "nothing of the kind")
    assert any("lines of the log of vLLM" in box.value for box in app.warning)


@pytest.mark.slow
def test_the_probe_looks_inside(visit_tab, monkeypatch):
    def here(config, **case):
        """The probe of this process in the place of one of its own."""
        return json.loads(json.dumps(meta_probe.probe(config, **case).to_dict()))

    monkeypatch.setattr("kvviz.ui.memory.layers.probe_apart", here)
    app = visit_tab("Look inside", models="tiny-qwen3", tokens="8", view="hf-dynamic")
    assert "This is a **recording** of the probe of LLaMA 3.1-8B at 8,192 tokens, in bfloat16, made with" in said(app)
    counted = "**1,073,741,824 B** in its tensors"
    assert f"{counted}; the formula's view *transformers, DynamicCache* says the same, to the byte." in said(app)
    app.button(key="m_probe").click().run()
    assert not app.exception
    assert "to the byte" in said(app) and "recording" not in said(app)
    inside = [frame.value for frame in app.dataframe if "keys" in frame.value.columns][-1]
    assert set(inside["keys"]) == {"1 × 2 × 8 × 32"}


def test_three_accounts_of_the_live_pages_model(visit_tab):
    app = visit_tab("How we know")
    assert app.header[0].value == "One cache, three accounts: mini-gpt2, 199 tokens"
    assert "This is a **recording** of mini-gpt2 on " in said(app)
    assert ": run a model on the Live page, and its accounts stand here." in said(app)
    assert [metric.value for metric in app.metric] == ["815,104 B"] * 3
    from kvviz.experiments.comparison.spec import ComparisonSpec

    own = app.scheduler.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    account = {
        "formula": 512,
        "tensors": 512,
        "storages": 512,
        "allocator": {"kept": 512, "peak": 900, "kind": "profiler"},
    }
    sizes = {"model": "tiny-gpt2", "batch": 2, "prompt_tokens": 5}
    run = DONE | {"memory": account, "step_s": [0.1] * 3}
    app.scheduler.record(own, {"t": "done", "document": {**sizes, "runs": [run]}})
    app.run()
    assert app.header[0].value == "One cache, three accounts: tiny-gpt2, 2 sequences of 7 tokens"
    assert not app.exception
    assert [metric.value for metric in app.metric] == ["512 B"] * 3 and "recording" not in said(app)


DONE = dict.fromkeys(HEADLINE) | {"mode": "cached"}
