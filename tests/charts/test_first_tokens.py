"""Prompts drawn cold and warm: what was kept of them, how long its first token took; texts are never markup."""

from kvviz.charts.first_tokens import first_tokens, strip


def timed(seconds):
    return {"ttft_s": seconds, "ttft_s_q1": 0.9 * seconds, "ttft_s_q3": 1.25 * seconds}


def row(kept, computed, cold, warm, **more):
    of_it = {"found_tokens": kept, "computed_tokens": computed, **timed(warm)}
    return {"prompt_tokens": kept + computed, "cold": timed(cold), "warm": of_it, **more}


def test_all_rows_are_drawn_over_the_same_axes():
    drawn = first_tokens([row(0, 40, 0.02, 0.02), row(60, 20, 0.04, 0.01)], [("One", "a < b"), ("Two", "")])
    assert "width:50.00%" in drawn and 'class="kept" style="width:75.00%"' in drawn, "of the longest prompt"
    assert 'class="cold" style="width:80.00%"' in drawn and "<b>10.0 ms</b>" in drawn, "of the slowest quartile"
    assert "left:72.00%;width:28.00%" in drawn and "a &lt; b" in drawn
    assert drawn.count("60 kept") == 1 and "0 kept<" not in drawn.replace("60 kept", "")


def test_the_same_work_cold_and_warm_is_held_against_the_quartiles():
    alike, apart, kept = (
        first_tokens([one], [("One", "")])
        for one in (row(0, 40, 0.02, 0.021), row(0, 40, 0.02, 0.03), row(9, 31, 0.02, 0.03))
    )
    no = "no difference beyond the spread (quartiles 18.0 to 25.0 ms and 18.9 to 26.3 ms)."
    assert f"<p>Warm found nothing: {no}</p>" in alike
    no = "so the cache does not make this difference; what does was not measured."
    assert f"<p>Warm found nothing: {no}</p>" in apart
    assert "found nothing" not in kept


def test_a_warm_bar_whose_request_found_nothing_looks_like_a_cold_one():
    nothing, hit = (first_tokens([row(found, 40, 0.02, 0.02)], [("One", "")]) for found in (0, 9))
    assert nothing.count('class="cold" style') == 2 and 'class="warm" style' not in nothing
    assert hit.count('class="cold" style') == hit.count('class="warm" style') == 1


def test_what_the_tokens_say_is_never_markup():
    drawn = strip(["<b>", "a & b"], 1)
    assert '<span class="kept" data-tokens="1">&lt;b&gt;</span>' in drawn and ">a &amp; b</span>" in drawn


def test_an_edit_is_marked_and_what_it_took_away_is_struck():
    drawn = strip(["A", " blue", " kite", ".", " So"], 1, ["A", " <red>", ".", " So"])
    assert drawn.endswith(
        '<span class="kept" data-tokens="1">A</span> <del>&lt;red&gt;</del> '
        '<span class="computed" data-tokens="2" data-new>blue kite</span>'
        '<span class="computed" data-tokens="2">. So</span></div>'
    ), "the space that parts two words stands outside of the boxes"
    assert '"><del>a</del><span class="kept" data-tokens="1">b</span><span' in strip(["b", "c"], 1, ["a", "b", "c"])
