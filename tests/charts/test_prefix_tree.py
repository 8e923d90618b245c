"""The drawing of a tree of prefixes: who shares what, and texts that are never markup."""

from kvviz.charts.prefix_tree import STATES, prefix_tree


def test_a_node_has_its_text_its_tokens_and_who_shares_it():
    last = {"first": 32, "requests": [1], "texts": ["</div>"], "states": ["gone"], "children": []}
    trunk = {"first": 0, "requests": [0, 1], "texts": ["<b>", "a & b"], "states": ["hit", "kept"], "children": [last]}
    drawn = prefix_tree([trunk], ["A1", "<B1>"], 16)
    assert "<b>A1 &lt;B1&gt;</b> share 32 tokens" in drawn and "<b>&lt;B1&gt;</b> 16 tokens" in drawn
    assert "--kvt-longest:3" in drawn and "--kvt-count:2" in drawn and drawn.count("<div") == drawn.count("</div>")
    for state, text in (("hit", "&lt;b&gt;"), ("kept", "a &amp; b"), ("gone", "&lt;/div&gt;")):
        assert f'<span class="kvt-{state}" title="{STATES[state][0]}">{text}</span>' in drawn
