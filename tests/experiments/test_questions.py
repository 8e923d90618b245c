"""Stop and think: every question stands somewhere, and an answer's figures are those at hand or there are none."""

import re

import pytest

from kvviz.base.errors import KvvizError
from kvviz.experiments.evidence import AtHand, Weighed, published, read_in_all
from kvviz.experiments.questions import QUESTIONS, on_page
from kvviz.memory.calculator import Asked, answer

ALL = QUESTIONS
# Figures with a unit that only a clock or an allocator could give.
MEASURED = re.compile(r"\d\s*(ms|s|B|[KMG]iB|tokens/s)\b|\d times")

ASKED = {
    "O(T²) without a cache, and O(T) with": "live",
    "What does TTFT measure": "live",
    "nearly equal at first": "live",
    "total quadratic": "compare",
    "tokens/s, ms/token, TTFT and peak memory": "live",
    "continuous batching": "serving",
    "flat at first on a big GPU": "live",
    "quantizing the weights": "memory",
    "K and V, but not Q": "anatomy",
    "an encoder": "anatomy",
    "in training": "anatomy",
    "fewer KV heads": "anatomy",
}


def run_of(mode, steps):
    middle = sorted(steps[1:])[len(steps) // 2 - 1]
    size = {"peak_bytes": 3 * 2**20, "cache_bytes": [0, 0] if mode == "uncached" else [2**19, 2**20]}
    return {"mode": mode, "step_s": steps, "ttft_s": steps[0], "itl_s": middle, "tokens_per_s": 1 / middle, **size}


DOCUMENT = {
    "model": "a-model",
    "prompt_tokens": 9,
    "runs": [
        run_of("uncached", [0.0111, 0.0123, 0.02, 0.03, 0.0456]),
        run_of("cached", [0.0112, 0.0031, 0.0032, 0.0033, 0.00345]),
    ],
}


@pytest.mark.parametrize(("words", "page"), ASKED.items())
def test_each_question_stands_on_its_page(words, page):
    (found,) = [question for question in QUESTIONS.values() if words in question.question]
    assert found.pages[0] == page
    assert found in on_page(page)


def test_which_cache_can_shorten_a_ttft_and_which_can_not_is_said_together():
    words = " ".join(ALL["ttft"].text.split())
    assert "a request's own cache can't shorten it" in words and "Serving measures that" in words


def test_no_question_is_out_of_sight():
    assert len(ALL) == len(QUESTIONS) == len(ASKED)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.id)
def test_without_figures_none_is_said(question):
    assert not MEASURED.search(question.short)
    answer = question.answer(AtHand())
    for sweep in question.published:
        assert published(sweep) in answer
        answer = answer.replace(published(sweep), "")
    assert not MEASURED.search(answer)
    if question.shown:
        assert question.run and question.run in answer, "it says what to run"


def test_a_published_curve_is_said_to_be_one_with_its_source():
    answer = ALL["flat"].answer(AtHand())
    assert answer.count("Not measured here") == 4 and answer.count("recorded with kvviz on an NVIDIA H100") == 2
    assert answer.count("https://jessicaruan.com/posts/tiny-decode-p1") == 2
    assert "No cache, from 8 new tokens to 512: time per token stays within 19% (6.02 ms to 6.61 ms)" in answer
    assert "No cache, from 32 new tokens to 1,024: time per token climbs to 3.61 times" in answer


def test_the_pattern_knows_a_figure():
    assert all(MEASURED.search(words) for words in ("12.3 ms", "2 s,", "4.5 GiB", "3.7 times", "climbs to 6.1 times"))


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("square", ["10 tokens", "12.3 ms", "13 tokens", "45.6 ms", "3.7 times", "3.1 ms", "3.45 ms", "1.1 times"]),
        ("ttft", ["No cache, TTFT 11.1 ms", "20 ms per token", "KV cache, TTFT 11.2 ms", "3.2 ms per token"]),
        (
            "parting",
            [
                "TTFT 11.1 ms",
                "0.9 times the first decode step (12.3 ms)",
                "last decode step 45.6 ms",
                "3.1 ms",
                "3.45 ms",
            ],
        ),
        (
            "metrics",
            ["50 tokens/s, 20 ms per token, TTFT 11.1 ms", "at most 3.0 MiB", "0 B in", "1.0 MiB in", "312 tok"],
        ),
        ("total", ["55 tokens", "32.3 ms", "75.6 ms", "13 tokens", "6.3 ms", "6.75 ms"]),
    ],
)
def test_a_comparison_answers_with_its_own_figures(name, figures):
    answer = ALL[name].answer(AtHand.of_document(DOCUMENT))
    assert "a-model, a prompt of 9 tokens" in answer
    assert [figure for figure in figures if figure not in answer] == []
    assert ALL[name].run not in answer


def test_a_curve_that_does_not_climb_is_not_said_to():
    flat = {**DOCUMENT, "runs": [run_of("uncached", [0.01, 0.01, 0.0101, 0.0102])]}
    assert "hardly climbs" in ALL["square"].answer(AtHand.of_document(flat))
    assert "hardly climbs" not in ALL["square"].answer(AtHand.of_document(DOCUMENT))


def test_passes_that_differ_widely_are_said_to():
    def answer(width):
        runs = [
            run | {"step_s_q1": [s * (1 - width) for s in run["step_s"]], "step_s_q3": run["step_s"]}
            for run in DOCUMENT["runs"]
        ]
        return ALL["parting"].answer(AtHand.of_document({**DOCUMENT, "runs": runs}))

    assert "Run it again" in answer(0.6)
    assert "Run it again" not in answer(0.3)


@pytest.mark.parametrize("name", ["square", "ttft", "parting", "metrics", "total"])
def test_runs_that_do_not_tell_leave_the_hint(name):
    for runs in ([], [run_of("watched", [0.1, 0.2, 0.3])], [{"mode": "uncached", "step_s": [0.1]}]):
        answer = ALL[name].answer(AtHand.of_document({**DOCUMENT, "runs": runs}))
        assert ALL[name].run in answer and not MEASURED.search(answer)


def test_tokens_read_in_all_are_those_of_every_forward():
    assert read_in_all(9, 5, caches=False) == 9 + 10 + 11 + 12 + 13
    assert read_in_all(9, 5, caches=True) == 9 + 1 + 1 + 1 + 1


def row(mode, prompt, itl, batch=1):
    return {
        "model": "a-model",
        "mode": mode,
        "prompt_tokens": prompt,
        "new_tokens": 8,
        "batch": batch,
        "dtype": "float32",
        "itl_s": itl,
        "ttft_s": prompt / 1e4,
        "tokens_per_s": 1 / itl,
        "peak_bytes": 2**20 * prompt,
    }


def test_a_sweep_answers_with_its_rows():
    rows = [row("uncached", 64, 0.01), row("uncached", 128, 0.03), row("cached", 64, 0.005), row("cached", 128, 0.0051)]
    answer = ALL["metrics"].answer(AtHand(rows=rows))
    assert (
        "**No cache**, from a prompt of 64 tokens to 128" in answer and "climbs to 3 times (10 ms to 30 ms)" in answer
    )
    assert "**KV cache**, from a prompt of 64 tokens to 128" in answer and "stays within 2% (5 ms to 5.1 ms)" in answer
    assert "64.0 MiB to 128.0 MiB" in answer
    assert ALL["batching"].run in ALL["batching"].answer(AtHand(rows=rows)), "no batch varies here"


def test_a_batch_sweep_tells_what_a_shared_step_takes():
    rows = [row("cached", 64, 0.005, batch=1), row("cached", 64, 0.0075, batch=8)]
    answer = ALL["batching"].answer(AtHand(rows=rows))
    assert "from 1 to 8 sequences" in answer and "5 ms to 7.5 ms, 1.5 times as long" in answer


def test_the_cache_stands_unchanged_beside_both_weights():
    case = Weighed(
        "A model", 4096, 1, "bfloat16", {"bfloat16": 2**34, "int4": 2**32}, dict.fromkeys(("bfloat16", "int4"), 2**29)
    )
    answer = ALL["quantization"].answer(AtHand(weighed=case))
    assert "bfloat16: 16.0 GiB, cache 512.0 MiB (536,870,912 B)" in answer
    assert "int4: 4.0 GiB, cache 512.0 MiB (536,870,912 B)" in answer


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.id)
def test_a_right_answer_is_right_and_another_one_is_not(question):
    check = question.check
    assert sum(map(bool, (check.choices, check.unit, check.strokes))) == 1, "one form of answer"
    assert check.is_right(check.read(check.answer)) and check.shown(check.answer)
    wrong = {
        "choices": [str(place) for place in range(len(check.choices)) if str(place) != check.right],
        "number": ["0", "-1"],
        "strokes": ["fall,fall"],
    }
    for text in wrong["choices" if check.choices else "number" if check.unit else "strokes"]:
        assert not check.is_right(check.read(text))
    for text in ("", "x", "1e12", "nan", "climb", "²"):
        with pytest.raises(KvvizError):
            check.read(text)


def test_a_number_has_one_spelling():
    check = QUESTIONS["square"].check
    assert {check.read(text) for text in ("100", "100.0", " 1e2", "0100")} == {check.answer}


def test_the_forms_of_answer_are_all_used():
    used = {
        kind
        for question in QUESTIONS.values()
        for kind in ("choices", "unit", "strokes")
        if getattr(question.check, kind)
    }
    assert used == {"choices", "unit", "strokes"}
    rights = [question.check.right for question in QUESTIONS.values() if question.check.choices]
    assert len(set(rights)) == 3, "the right choice does not always stand in one place"


def test_numbers_that_are_asked_for_follow_from_the_formulas():
    assert QUESTIONS["total"].check.answer == str(read_in_all(4, 4, caches=False)), "4 tokens, then 4 new ones"
    few = answer(Asked(tokens=8192), "llama-3.1-8b")
    assert few.spec is not None
    heads = few.spec.heads, few.spec.layers[0].kv_heads
    assert heads == (32, 8) and QUESTIONS["heads"].check.answer == str(heads[0] // heads[1])
