"""The drawing of a tree of prefixes: who shares what, and texts that are never markup."""

from kvviz.charts.prefix_tree import HIGH, STATES, costs, prefix_tree


def test_a_node_has_its_text_its_tokens_and_who_shares_it():
    last = {"first": 32, "requests": [1], "texts": ["</div>"], "states": ["gone"], "children": []}
    trunk = {"first": 0, "requests": [0, 1], "texts": ["<b>", "a & b"], "states": ["hit", "kept"], "children": [last]}
    drawn = prefix_tree([trunk], ["A1", "<B1>"], 16)
    assert "<b>A1 &lt;B1&gt;</b> share 32 tokens" in drawn and "<b>&lt;B1&gt;</b> 16 tokens" in drawn
    assert "--kvt-longest:3" in drawn and "--kvt-count:2" in drawn and drawn.count("<div") == drawn.count("</div>")
    for state, text in (("hit", "&lt;b&gt;"), ("kept", "a &amp; b"), ("gone", "&lt;/div&gt;")):
        assert f'<span class="kvt-{state}" title="{STATES[state][0]}">{text}</span>' in drawn


def test_what_each_request_cost_adds_up_to_what_its_order_cost():
    def asked(hit, again, new):
        return {"prompt_tokens": hit + again + new, "hit_tokens": hit, "computed_tokens": again + new,
                "recomputed_tokens": again}  # fmt: skip

    rows = [
        {"title": "Oldest first", "recomputed_tokens": 48, "requests": [asked(0, 16, 4), asked(48, 32, 0)]},
        {"title": "<other>", "recomputed_tokens": 0, "requests": [asked(0, 0, 20), asked(80, 0, 0)]},
    ]
    first, second = costs(rows, ["A1", "B<1>"], 1).split("</section>")[:2]
    assert "<b>16</b>" in first and "<b>32</b>" in first and "<b>= 48</b>" in first and "<b>= 0</b>" in second
    assert f'class="kvt-again" style="height:{HIGH * 32 / 80:.2f}rem"' in first and "&lt;other&gt;" in second
    assert first.count('data-chosen="true" title="B&lt;1&gt;: 48 tokens hit, 0 computed, 32 computed again"') == 1
