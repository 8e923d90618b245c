"""The cost page, pressed as a user would."""

import pytest

from tests.pages.conftest import charts

WORDS = ("c_asked", "c_bytes")
BOXES = ("c_shorthand", "c_ceilings", "c_accelerators")  # which draw nothing until they are opened


@pytest.fixture
def page(open_page):
    """The page, with its two boxes of words open."""
    return lambda **link: open_page("cost", opened={*WORDS}, **link)


def unfolded(app, *keys):
    """Open these boxes, or all, and draw the page again."""
    for key in keys or BOXES:
        app.session_state[key] = True
    return app.run()


def test_it_opens_on_a_model_that_people_know_and_says_first_what_its_run_costs(page):
    test = page()
    said = [part.value for part in test.markdown]
    assert test.header[0].value == (
        "Without the cache, this run takes 510 times the work; the cache that saves it takes 135.9 MiB"
    )
    assert (
        "The first step, the prefill, computes 64 tokens in both: TTFT is the same. The last computes **1,087** "
        "without the cache, **1** with it. All steps together compute 589,312 without it (a rectangle, N · P = 65,536, "
        "and a triangle, N (N − 1) / 2 = 523,776), and 1,087 with it."
    ) in said
    assert sum(range(64, 1088)) == 589_312
    assert (
        test.header[1].value == "Calculated for the H100, the run takes at least 9.1 s without the cache, 4.6 s with it"
    )
    assert test.header[2].value == (
        "Attention costs more than projections and MLP only from 26,624 tokens on; this run ends at 1,087"
    )
    assert "**With the cache, 99% of the least time is waiting for weights**" in said
    (time,) = [part for part in said if part.startswith("**The work falls")]
    assert time.startswith(
        "**The work falls 510 times, but the least time only 2 times, because both runs read the weights in every "
        "step: with the cache, 14.0 GiB (of 15.0 GiB) for a single token**. At best a step computes while it reads "
        "and writes, and waits for the longer of the two: without the cache, 3.3 s of reading and 0.88 s of arithmetic "
        "hide behind the other."
    ), "1.3 s of waiting and 3.3 s hidden are the 4.6 s of the run with the cache"
    assert any("; the charts go on to 35,000, past where attention overtakes." in part for part in said)
    (shape,) = [part for part in said if part.startswith("*No cache* grows with the square")]
    assert "*KV cache* grows in a straight line. Without the cache 542 times as many tokens" in shape
    assert "**The work so far: the sum of these steps**" in said
    assert any("of 8 KV heads) = 142,475,264 B, which is 135.9 MiB" in caption.value for caption in test.caption)
    assert "**Without the cache, a step computes all T tokens: 1,130 TFLOP at T = 35,000**" in said
    assert "**With the cache, a step computes one token: 33.4 GFLOP at T = 35,000, 34,000 times less**" in said
    drawn = charts(test)
    assert [len(chart["data"]) for chart in drawn] == [3, 2, 3, 4, 4], "none is drawn twice"
    assert drawn[-1]["layout"]["yaxis"]["title"]["text"] == "GFLOP for a step (1,000 = 1 TFLOP)"
    marks = [[label["text"] for label in chart["layout"]["annotations"]] for chart in drawn[-2:]]
    assert all({"this run ends", "attention overtakes"} < set(mark) for mark in marks)
    assert not test.dataframe, "what is in the boxes waits until they are opened"
    assert not [field for field in test.number_input if field.key in ("c_width", "c_layers")], "the model brings them"
    assert test.query_params["model"] == "llama-3.1-8b"
    said = [part.value for part in unfolded(test, "c_ceilings").markdown]
    (ceilings,) = [part for part in said if "waits for **memory**" in part]
    assert "many times the chip's own cache" in ceilings and "operations to be launched: Roofline measures" in ceilings


def test_a_model_that_one_gpu_can_not_hold_is_told_on_as_many_as_hold_it(page):
    test = page(model="llama-3.1-405b")
    assert test.header[1].value.startswith("Calculated for 10 × H100, the run takes at least ")
    said = [part.value for part in test.markdown]
    assert any("but the least time hardly at all, because both runs read" in part for part in said)
    (rates,) = [caption.value for caption in test.caption if caption.value.startswith("By the [data sheet]")]
    assert "10 × NVIDIA H100 80 GB (SXM), the fewest that hold its weights and cache" in rates
    assert ": 990 TFLOP/s in bfloat16, 3.35 TB/s each. What is measured" in rates


def test_the_classroom_case(page):
    test = unfolded(page(model=""))
    assert len(charts(test)) == 5 and len(test.dataframe) >= 2
    said = [part.value for part in test.markdown]
    claim = "By the shorthand, most of the work without the cache is the new tokens, read again for each new token"
    assert f"**{claim}**" in said
    assert test.header[0].value == (
        "Without the cache, this run takes 13.1 times the work; the cache that saves it takes 27.0 KiB"
    )
    assert len(test.header) == 2, "plain layers read weights that nobody counts: no time is told"
    assert any("The last computes **27** without the cache, **1** with it." in part for part in said)
    plain_layer, shorthand = (formula.value for formula in test.latex)
    assert "= 384" in plain_layer
    assert all(sum_ in shorthand for sum_ in ("655{,}360", "819{,}200", "1{,}474{,}560", "114{,}688", "12.9"))
    assert any("27,648 B" in caption.value and "holds P + N − 1 tokens" in caption.value for caption in test.caption)
    assert any("Counted, the run saves 13.1×" in words for words in said)
    assert test.query_params["model"] == "", "its link leads here, and not to what the page opens on"


@pytest.mark.slow
def test_an_example_fills_the_form_and_the_link(page):
    test = page()
    test.pills(key="c_preset").set_value("GPT-3's cache").run()
    assert not test.exception
    assert any("9,658,957,824 B, which is 9.0 GiB (powers of 1024) or 9.66 GB" in c.value for c in test.caption)
    assert test.query_params["model"] == "gpt3-175b" and test.query_params["width"] == "12288"


@pytest.mark.slow
def test_a_link_is_taken_over(page):
    test = page(prompt="1024", new="200", width="4096")
    assert any("the linear term is 10.24 times the quadratic one" in text.value for text in test.markdown)
    bad = page(prompt="many", layers="3")
    assert bad.warning[0].value == "The link's prompt: 'many' is no whole number."
    assert bad.number_input(key="c_layers").value == 3


@pytest.mark.slow
def test_a_model_brings_its_widths(page):
    test = page()
    test.selectbox(key="c_model").set_value("gpt2").run()
    assert not test.exception
    assert test.query_params["width"] == "768" and test.query_params["layers"] == "12"
    assert not any("it would be" in caption.value for caption in test.caption)
    assert any("at **4,608** tokens, beyond its 1,024 positions" in text.value for text in test.markdown)


@pytest.mark.slow
def test_one_new_token_saves_nothing(page):
    test = page(model="", new="1")
    said = [part.value for part in test.markdown]
    assert test.header[0].value == "One new token comes from the prefill alone: there the cache saves nothing"
    assert "The first step, the prefill, computes 8 tokens in both: TTFT is the same." in said


@pytest.mark.slow
def test_fewer_kv_heads_are_said(page):
    test = page(model="llama-3.1-8b", width="4096", layers="32", prompt="1000", new="24", dtype="float16")
    assert test.header[0].value.endswith("; the cache that saves it takes 127.9 MiB")
    assert any("of 8 KV heads) = 134,086,656 B" in caption.value for caption in test.caption)


@pytest.mark.slow
def test_a_pasted_config_is_counted_or_refused_in_a_sentence(page):
    test = page(model="")
    test.selectbox(key="c_model").set_value("own").run()
    test.text_area(key="c_paste").set_value('{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256}').run()
    assert not test.exception
    assert test.query_params["width"] == "256"
    test.text_area(key="c_paste").set_value('{"model_type": "jetmoe", "num_hidden_layers": 4}').run()
    assert not test.exception
    assert "can't count jetmoe because" in test.warning[0].value
    test.text_area(key="c_paste").set_value("{").run()
    assert "can't be read as JSON" in test.warning[0].value


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The file in which measured ceilings are kept, in a folder of this test's own."""
    from kvviz.cost.ceilings import path

    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))
    return path()


@pytest.mark.slow
def test_without_ceilings_it_says_how_to_measure_them(page, stored):
    test = unfolded(page())
    assert any("python -m kvviz ceilings" in words.value for words in test.caption)
    advertised = test.dataframe[-1].value
    assert advertised.loc[advertised["Accelerator"] == "NVIDIA H200 (SXM)", "Read, GB/s"].item() == 4800
    assert all(source.startswith("https://") for source in advertised["Source"])


@pytest.mark.slow
def test_measured_ceilings_stand_at_its_foot(page, stored):
    from kvviz.cost.ceilings import Ceilings, Machine, MatrixRate, keep

    here = Machine("cpu", "A test's processor", 3, 4, "2.0", "3.12", "somewhere")
    product = (MatrixRate("float32", 512, 512, 512, 9e10),)
    found = Ceilings(
        here, "2026-01-02T03:04:05Z", 2**28, 2e10, "sum", {"sum": 2e10}, {"float32": 1.5e10}, product, 2e-6
    )
    keep(found)
    test = unfolded(page(), "c_ceilings", "c_accelerators")
    (row,) = test.dataframe[-2].value.to_dict("records")
    assert (row["Device"], row["Plain read"], row["One-row product"]) == (
        "A test's processor, 3 threads",
        "20.0 GB/s",
        "15.0 GB/s",
    )
    assert (row["Matrix product"], row["Least time of an operation"]) == ("90 GFLOP/s", "2.0 µs")
    stored.write_text("{")
    assert "`kvviz ceilings --refresh` replaces them" in page().warning[0].value


@pytest.mark.parametrize(
    ("new", "without", "within", "said"),
    [
        (
            32,
            2.6,
            1.02,
            "*No cache* grows with the square: the second half of the new tokens takes 2.6 times the work of the "
            "first. *KV cache* grows in a straight line.",
        ),
        (
            32,
            2.6,
            1.8,
            "*KV cache* bends, too: the second half of the new tokens takes 1.8 times the work of the first.",
        ),
        (32, 1.1, 1.0, "*No cache* is nearly a straight line, as the rectangle is the larger part. *KV cache* grows"),
        (512, 1.4, 1.0, "bends little: the second half of the new tokens takes only 1.4 times the work of the first."),
    ],
)
def test_the_shape_of_the_totals_is_said_from_their_sums_and_halves(new, without, within, said):
    from kvviz.cost.shorthand import Case
    from kvviz.ui.cost.results import _shape

    assert said in _shape(Case(prompt=64, new=new), without, within).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3.1-8b", "with 510 times the work: the output layer scores one token a "),
        ("deepseek-v3", "with 34.4 times the work: transformers makes all keys and values"),
        ("", "with 648 times the work: attention costs most in the last steps"),
        ("llama-3.1-405b", ""),  # 541 times, and no one part makes most of the gap
    ],
)
def test_the_part_that_makes_most_of_the_gap_between_tokens_and_work_is_named(model, said):
    from kvviz.cost.shorthand import Case
    from kvviz.ui.cost.results import _apart

    words = _apart(Case(model=model, prompt=64, new=1024))
    assert said in words and bool(said) == bool(words)
    assert not said or words.startswith("Without the cache 542 times as many tokens are computed, with ")


@pytest.mark.parametrize(
    ("without", "within", "told"),
    [
        ({"mlp": 1000, "head": 10}, {"mlp": 10, "head": 10}, True),
        ({"mlp": 900, "head": 100}, {"mlp": 10, "head": 10}, False),  # seen in both
        ({"mlp": 90_000, "head": 10}, {"mlp": 10_000, "head": 10}, False),  # seen in neither
        ({"mlp": 10_000, "head": 50}, {"mlp": 10, "head": 10}, False),  # it scores every token
        ({"mlp": 1000}, {"mlp": 10}, False),
    ],
)
def test_an_output_layer_that_one_chart_alone_shows_is_missed_nowhere(without, within, told):
    from kvviz.ui.cost.results import output_layer

    assert output_layer(without, within).startswith("The **output layer**") is told


@pytest.mark.parametrize(
    ("end", "overtakes", "edge"),
    [(1_087, 26_624, 35_000), (1_087, None, 1_100), (40_001, 26_624, 41_000), (50_000, 10, 50_000), (1, None, 3)],
)
def test_the_axis_of_a_steps_parts_ends_at_a_round_number(end, overtakes, edge):
    from kvviz.ui.cost.results import axis_end

    assert axis_end(end, overtakes) == edge
