"""The verdict: known curves come back, what can't be told is said, and the sentence names what the estimate says."""

import json
import math
import random
import statistics

import pytest

from kvviz.cost.flops import Rates, total_flops
from kvviz.cost.flops import prefill as whole
from kvviz.cost.shape import read_shape
from kvviz.cost.step_estimate import WORDS, Model
from kvviz.experiments.comparison import verdict as module
from kvviz.experiments.comparison.verdict import PAYS, equation, judge, verdict
from kvviz.models.sources import find_source

PROMPT, STEPS = 32, 96
CACHED, UNCACHED = (4e-3, 2e-6), (2e-3, 3e-5, 2e-7)


def curve(coefficients, noise=1e-5, steps=STEPS, seed=1):
    draw = random.Random(seed)
    return [sum(c * (PROMPT + i) ** n for n, c in enumerate(coefficients)) + draw.gauss(0, noise) for i in range(steps)]


def estimate(largest, seconds=4e-3):
    return {"tokens": 80, **{name: seconds if name == largest else seconds / 10 for name in WORDS}}


def made(cached=None, uncached=None, bounds=("weights_s", "computing_s"), speedup=None):
    """A document from two curves; `bounds`: the largest part of each estimate, None for a document without rates."""
    curves = {"uncached": uncached or curve(UNCACHED, seed=2), "cached": cached or curve(CACHED)}
    whole = {mode: sum(steps) for mode, steps in curves.items()}
    gains = {"uncached": 1.0, "cached": speedup or whole["uncached"] / whole["cached"]}
    found = dict(zip(("cached", "uncached"), bounds, strict=True)) if bounds else {}
    runs = [
        {"mode": mode, "step_s": steps, "speedup": gains[mode]}
        | ({"estimate": estimate(found[mode], sorted(steps)[len(steps) // 2])} if found else {})
        for mode, steps in curves.items()
    ]
    return {"prompt_tokens": PROMPT, "runs": runs}


def entry(found, mode):
    return next(row for row in found["modes"] if row["mode"] == mode)


def test_known_coefficients_come_back_in_named_units():
    found = verdict(made())
    for mode, known in (("cached", CACHED), ("uncached", UNCACHED)):
        fitted = entry(found, mode)["fit"]
        for name, value in zip(module.COEFFICIENTS, known, strict=False):
            row = fitted[name]
            slack = row["high"] - row["low"]  # twice the half-width: 95% intervals miss one time in twenty
            assert row["low"] - slack / 2 <= value <= row["high"] + slack / 2
            assert slack < 2 * value, f"{name} of {mode} is told"
        assert (fitted["first_token"], fitted["last_token"]) == (PROMPT + 1, PROMPT + STEPS - 1)
    assert "c_s_per_token2" not in entry(found, "cached")["fit"], "a step with the cache is a line"


def test_the_prefill_is_left_out():
    plain, slow = made(), made()
    slow["runs"][0]["step_s"][0] = 50.0
    assert verdict(plain)["modes"] == verdict(slow)["modes"]


def test_a_long_curve_is_thinned_and_keeps_its_coefficients():
    found = entry(verdict(made(cached=curve(CACHED, steps=4000))), "cached")["fit"]
    assert found["points"] <= module.POINTS
    assert found["a_s"]["value"] == pytest.approx(4e-3, rel=0.01)
    assert found["b_s_per_token"]["value"] == pytest.approx(2e-6, rel=0.01)


def test_the_crossover_lies_where_the_curves_meet():
    meets = (-28e-6 + math.sqrt(28e-6**2 + 4 * 2e-7 * 2e-3)) / (2 * 2e-7)
    found = verdict(made())["crossover"]
    assert found["says"] == "crosses" and found["token"] == pytest.approx(meets, abs=2)
    assert f"about {found['token']:,.0f} tokens" in found["sentence"]


def test_the_cache_pays_at_once_or_never_in_what_was_measured():
    assert verdict(made(cached=curve((1e-4, 1e-7))))["crossover"]["says"] == "always"
    never = verdict(made(cached=curve((1.0, 1e-7))))["crossover"]
    assert never["says"] == "never" and "within the 127 tokens measured" in never["sentence"]


def test_too_much_noise_and_too_few_steps_are_said():
    noisy = verdict(made(cached=curve(CACHED, noise=2e-3), uncached=curve((2e-3, 1e-6, 1e-9), noise=2e-3, seed=3)))
    assert any(words.startswith("can't tell b from 0: it lies between -") for words in entry(noisy, "cached")["untold"])
    assert "µs per token" in entry(noisy, "cached")["untold"][-1]
    assert r"can't be told from 0" in equation(entry(noisy, "cached"))
    few = verdict(made(cached=curve(CACHED, steps=5), uncached=curve(UNCACHED, steps=5)))
    assert [row["fit"] for row in few["modes"]] == [None, None]
    assert few["modes"][0]["untold"] == ["can't tell: 4 steps are too few to fit; decode at least 16 tokens"]
    assert few["crossover"]["says"] == "untold" and few["crossover"]["sentence"].startswith("can't tell where")
    assert equation(few["modes"][0]) is None


@pytest.mark.parametrize("part", WORDS)
def test_the_sentence_names_the_largest_part_beside_the_measured_time(part):
    found = verdict(made(bounds=(part, "computing_s")))
    assert f"KV cache, mostly {WORDS[part]} (" in found["sentence"]
    assert found["sentence"].startswith("By prediction") and "measured: " in found["sentence"]
    assert entry(found, "cached")["bound"] == f"mostly {WORDS[part]}"
    assert "far apart" not in found["sentence"] and found["advice"] is None


def test_an_estimate_that_does_not_fit_the_measurement_is_called_a_guess():
    document = made()
    document["runs"][1]["estimate"] = estimate("weights_s", 1.0)
    assert "far apart" in verdict(document)["sentence"] and "guess" in verdict(document)["sentence"]


def test_the_verdict_speaks_of_the_dashed_lines_prediction_and_of_no_other():
    document = made()
    document["runs"][1]["predicted_s"] = [5e-3, 4.6e-3, 4.7e-3, 4.8e-3]
    found = verdict(document)
    assert " of 4.7 ms; measured: " in found["sentence"] and entry(found, "cached")["estimate_s"] == 4.7e-3


def test_no_part_of_a_step_is_said_to_take_longer_than_the_step():
    document = made(cached=curve((2e-3, 1e-7), noise=0), bounds=("starting_s", "computing_s"))
    document["runs"][1] |= {"estimate": estimate("starting_s", 3.5e-3), "predicted_s": [4.5e-3] * STEPS}
    document["runs"][1]["estimate"]["weights_s"] = 2.5e-3
    assert "weights" in entry(verdict(document), "cached")["bound"], "2 ms of launches at most, 2.5 ms of reading"
    found = verdict(document)["sentence"]
    assert "launch overhead (at most the measured 2.01 ms; predicted: 3.5 ms of 4.5 ms)" in found
    assert "so take the reason as a guess" in found


def test_how_far_off_the_prediction_was_is_said():
    document = made()
    assert verdict(document)["prediction"] is None
    for run, off in zip(document["runs"], (0.93, 1.04), strict=True):
        run["predicted_s"] = [statistics.median(run["step_s"][1:]) * off] * STEPS
    found = verdict(document)
    assert "for a median step No cache 5.27 ms where 5.67 ms were measured, 7% too low; KV" in found["prediction"]
    assert entry(found, "cached")["estimate_s"] == document["runs"][1]["predicted_s"][1]
    assert "4% too high. A prediction adds up the counted work" in found["prediction"], "and what it leaves out"


def test_where_starts_bound_the_step_it_names_the_mode_without_them():
    assert "Compiled" not in verdict(made())["sentence"]
    document = made(bounds=("starting_s", "starting_s"))
    assert module.ONE_CALL in verdict(document)["sentence"] and "took" not in verdict(document)["sentence"]
    document["runs"].append({"mode": "compiled", "step_s": [5e-4] * STEPS})
    assert "and that of KV cache 4." in verdict(document)["sentence"]
    assert "its step took 0.5 ms, and that" in verdict(document)["sentence"]


LEVEL = {"cached": curve((4e-3, 1e-7)), "uncached": curve((4e-3, 1e-6, 1e-10), seed=2)}


@pytest.mark.parametrize(
    ("part", "why", "change"),
    [
        ("starting_s", "spends longest on starting operations", "a larger model or a larger batch"),
        ("weights_s", "spends longest on reading the weights", "longer prompt, more new tokens or a larger batch"),
        ("computing_s", "the times do not follow it", "does nothing else"),
    ],
)
def test_where_the_cache_brings_nothing_it_says_why_and_what_to_change(part, why, change):
    found = verdict(made(**LEVEL, bounds=(part, part)))["advice"]
    assert why in found and change in found and "80 tokens" in found
    assert "by estimate" in found


def test_a_run_that_is_mostly_prefill_is_not_blamed_on_its_steps():
    found = verdict(made(speedup=1.1))["advice"]
    assert "prefill" in found and "decode more new tokens" in found


def test_where_it_pays_no_advice_is_given():
    assert verdict(made(**LEVEL, speedup=PAYS))["advice"] is None
    assert verdict(made(**LEVEL, speedup=PAYS - 0.01))["advice"] is not None


def test_what_the_noise_of_a_few_tokens_hides_is_no_advice():
    """0.738 times as fast is what two tokens of a busy machine gave."""
    document = made(**{name: seconds[:2] for name, seconds in LEVEL.items()}, speedup=0.738)
    assert "can't be told" in verdict(document)["advice"]
    document = made(**LEVEL, speedup=0.9)
    document["runs"][1]["speedup_interval"] = [0.5, 1.6]
    assert "can't be told" in verdict(document)["advice"]
    document["runs"][1]["speedup_interval"] = [0.85, 0.95]
    assert "brings nothing here" in verdict(document)["advice"]


@pytest.mark.parametrize(
    ("interval", "brings"),
    [([1.02, 1.18], "little here"), ([0.95, 1.15], "little or nothing here"), ([0.85, 0.95], "nothing here")],
)
def test_what_the_cache_brings_is_said_by_the_interval(interval, brings):
    document = made(**LEVEL, speedup=sum(interval) / 2)
    document["runs"][1]["speedup_interval"] = interval
    assert verdict(document)["advice"].startswith(f"The cache brings {brings}, the whole run is ")


def test_mostly_is_half_of_a_step_or_more():
    document = made()
    parts = {"tokens": 80, "weights_s": 2e-3, "computing_s": 1e-3, "starting_s": 1.9e-3, "scan_s": 4e-4}
    document["runs"][1]["estimate"] = parts
    assert entry(verdict(document), "cached")["bound"] == "more than anything else reading the weights"
    document["runs"][1]["estimate"] = {**parts, "starting_s": 1e-3}
    assert entry(verdict(document), "cached")["bound"] == "mostly reading the weights"


def test_each_run_has_the_shape_that_its_interval_tells():
    found = verdict(made(cached=curve((4e-3, 1e-7))))
    assert [row["shape"] for row in found["modes"]] == ["climb", "flat"]
    loud = verdict(made(cached=curve((4e-3, 1e-7), noise=2e-3), uncached=curve(UNCACHED, steps=5)))
    assert [row["shape"] for row in loud["modes"]] == [None, None], "too loud, and too few"


def test_a_document_without_rates_is_not_guessed():
    found = verdict(made(**LEVEL, bounds=None))
    assert "unknown" in found["sentence"] and "Why is unknown" in found["advice"]
    assert entry(found, "cached")["bound"] is None and entry(found, "cached")["fit"] is not None


@pytest.mark.parametrize("steps", [[0.0] * 40, [1e-3], [1e-3, 1e-3], [1e6] * 40, [0.0, *[1e6, 0.0] * 20]])
def test_odd_times_never_break_it(steps):
    for bounds in (None, ("weights_s", "computing_s")):
        found = verdict(made(cached=list(steps), uncached=list(steps), bounds=bounds, speedup=1.0))
        json.dumps(found, allow_nan=False)
        assert found["sentence"] and all(equation(row) is None or "nan" not in equation(row) for row in found["modes"])


def test_unknown_lengths_and_modes_are_said():
    document = made()
    document["runs"].append({"mode": "unheard-of", "step_s": curve(CACHED)})
    assert "does not know the mode" in entry(verdict(document), "unheard-of")["untold"][0]
    alone = judge(None, document["runs"][1:2])
    assert alone["crossover"] is None and alone["advice"] is None
    assert alone["modes"][0]["untold"] == ["can't tell: the prompt's length is not known"]


def test_a_square_that_can_not_be_told_leaves_the_line_that_can():
    found = entry(verdict(made(uncached=curve((2e-3, 3e-5), seed=2))), "uncached")
    assert not found["fit"]["c_s_per_token2"]["told"]
    assert found["line"]["b_s_per_token"]["value"] == pytest.approx(3e-5, rel=0.02)
    assert "T^2" in equation(found) and "T^2" not in equation(found, "line")
    assert all(row["line"] is None for row in verdict(made())["modes"])


def test_the_formula_is_typeset_with_the_numbers_and_their_intervals():
    found = verdict(made())
    line, parabola = equation(entry(found, "cached")), equation(entry(found, "uncached"))
    assert line.startswith(r"t_{\text{KV cache}}(T) = (4.0") and r"\pm" in line and "T^2" not in line
    assert r"\tfrac{\text{ns}}{\text{token}^2}\,T^2" in parabola
    assert parabola.isascii()  # KaTeX complains of any other letter
    assert r"\text{ms}" in line and "nan" not in line + parabola


def test_no_number_is_too_large_or_too_small_to_keep_its_interval():
    fitted = {name: {"value": 4e25, "low": -1e25, "high": 9e25, "told": False} for name in module.COEFFICIENTS[:1]}
    fitted["b_s_per_token"] = {"value": 3e-14, "low": 1e-14, "high": 5e-14, "told": True}
    found = equation({"mode": "cached", "fit": fitted})
    assert r"4 \cdot 10^{28} \pm 5 \cdot 10^{28}" in found and r"3 \cdot 10^{-8} \pm 2 \cdot 10^{-8}" in found


# --- the estimate behind it ---------------------------------------------------------------------------------------

RATES = Rates(2e10, 8e10, 2e-6)


def test_each_part_of_the_estimate_follows_its_rate():
    source = find_source("gpt2", "random")
    shape = read_shape(source.config)
    model = Model(source.spec, source.params, shape)
    once, again = (model.step(512, 1, "float32", RATES, caches=caches) for caches in (True, False))
    assert once.scan_s == 12 * 2 * 768 * 512 * 4 / RATES.read and again.scan_s == 0
    assert again.computing_s == total_flops(shape, whole(shape, 512)) / RATES.flops
    assert once.starting_s == again.starting_s == 12 * 100 * RATES.launch
    assert once.weights_s == pytest.approx(source.params * 4 / RATES.read, rel=0.02)
    uncounted = Model(source.spec, source.params, None).step(512, 1, "float32", RATES, caches=True)
    assert uncounted.scan_s == once.scan_s and uncounted.weights_s == source.params * 4 / RATES.read
