"""The drawing of a tree of prefixes: who shares what, and texts that are never markup."""

from kvviz.charts.prefix_tree import STATES, prefix_tree


def test_a_node_has_its_text_its_tokens_and_who_shares_it():
    last = {"first": 32, "requests": [1], "texts": ["</div>"], "states": ["gone"], "children": []}
    trunk = {"first": 0, "requests": [0, 1], "texts": ["<b>", "a & b"], "states": ["hit", "kept"], "children": [last]}
    drawn = prefix_tree([trunk], ["A1", "<B1>"], 16)
    assert "<b>32 tokens</b>, shared by 2: A1 &lt;B1&gt;" in drawn and "<b>16 tokens</b>, &lt;B1&gt;" in drawn
    assert drawn.count("kvt-lit") == 1 and drawn.count("<div") == drawn.count("</div>")
    for state, text in (("hit", "&lt;b&gt;"), ("kept", "a &amp; b"), ("gone", "&lt;/div&gt;")):
        assert f'<span class="kvt-{state}" title="{STATES[state][0]}">{text}</span>' in drawn
