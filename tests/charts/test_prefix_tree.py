"""The drawing of the prefixes in a memory: each by its name, and texts that are never markup."""

from kvviz.charts.prefix_tree import STATES, cost, evicted_from, prefix_tree, with_open_block

TURNS = [("A", "A’s <turn> 1"), ("B", "B’s turn 1"), ("A", "A’s turn 2")]


def test_blocks_stand_under_the_turn_that_filled_them_first():
    last = {"first": 48, "requests": [2], "texts": ["</div>"], "states": ["gone"], "children": []}
    own = {"first": 32, "requests": [0, 2], "texts": ["c"], "states": ["again"], "children": [last]}
    trunk = {"first": 0, "requests": [0, 1, 2], "texts": ["<b>", "a & b"], "states": ["hit", "kept"], "children": [own]}
    drawn = prefix_tree([trunk], TURNS, 16)
    heads = ["32 tokens", "16 tokens", "16 tokens"], ["The system prompt", "A’s &lt;turn&gt; 1", "A’s turn 2"]
    assert [part.split("</p>")[0] for part in drawn.split("<p ")[1:]] == [
        f'title="{tokens}">{name}' for tokens, name in zip(*heads, strict=True)
    ]
    assert "--kvt-longest:4" in drawn and "--kvt-count:2" in drawn and drawn.count("<div") == drawn.count("</div>")
    for state, text in (("hit", "&lt;b&gt;"), ("kept", "a &amp; b"), ("gone", "&lt;/div&gt;")):
        assert f'<span class="kvt-{state}" title="{text}">{STATES[state][1]}</span>' in drawn


def test_a_block_that_is_not_full_ends_its_requests_prefix():
    def run(number, *children, more=()):
        return {"requests": [number, *more], "states": ["kept"], "texts": ["a"], "children": list(children)}

    tree = [run(0, run(0), run(1), more=(1, 2))]
    (trunk,) = with_open_block(tree, 1, 12, 16)
    assert [child["states"] for child in trunk["children"]] == [["kept"], ["kept", "open"]], "to its own run"
    (trunk,) = with_open_block(tree, 2, 12, 16)
    assert [child["requests"] for child in trunk["children"]] == [[0], [1], [2]], "beside those of others"
    assert [each["states"] for each in with_open_block(tree, 3, 4, 16)] == [["kept"], ["open"]]
    assert "--kvt-filled:75%" in prefix_tree([trunk], TURNS, 16) and tree[0]["children"][1]["states"] == ["kept"]


def test_what_was_evicted_is_named():
    def run(states, *children, whose=(0,)):
        return {"requests": whose, "states": states, "children": children}

    assert evicted_from([run(["kept", "hit"])], TURNS) == ""
    tree = [
        run(["kept"], run(["kept", "evicted"]), run(["gone", "kept"], whose=(2,)), whose=(0, 1)),
        run(["gone"], whose=(1,)),
    ]
    assert evicted_from(tree, TURNS) == "B’s turn 1, the end of A’s <turn> 1 and a part of A’s turn 2"


def test_what_a_request_costs_adds_up_to_its_prompt():
    asked = {"hit_tokens": 48, "computed_tokens": 24, "recomputed_tokens": 16}
    drawn = cost(asked, 144)
    assert [part.split("</span>")[0] for part in drawn.split("flex-basis:")[1:]] == [
        '33.33%">48 found',
        '11.11%">16 <b>again</b>',
        '5.56%">8 new',
    ]
    assert "found" not in cost({**asked, "hit_tokens": 0}, 144)
