"""The contract of a cache design: solved exercises meet it, and each mistake is told by a sentence that teaches."""

import pytest

from kvviz.caches.designs import DESIGNS, own_design
from kvviz.caches.starters.write import EXERCISES, STARTERS, written
from kvviz.decoding.contract.checks import check
from kvviz.decoding.contract.goals import GOALS

UNSOLVED = {  # the check at which an exercise as it stands fails, and what it is told
    "own": ("numbers", "`_append` returned the 1 new one alone. Join what was kept before"),
    "reserve": (
        "goal",
        "The append of token 36 put the cache into a new tensor of 12,096 B: all 36 tokens were copied",
    ),
    "paged": ("goal", "one should have 3 blocks of 16 slots; its memory is that of 2.188."),
    "prefix": ("goal", "need 12,768 B if those are kept once; `filled()` holds 18,144 B."),
    "take-back": ("crop", "attention must see 54 tokens and the new one; it saw 56. `_crop` has to remove those"),
    "int8": ("bytes", "`formula` gives 2,310 B, but the tensors of `filled()` hold 6,720 B (keys.codes (1, 3, 35, 8)"),
}
GIVEN = "return keys, values"
KEPT = "self.keys, self.values = (x[:, :, x.shape[2] - self.held :] for x in (keys, values))"
NEW = "self.seen - self.behind)"
WRONG = {  # a line of the solved starter, the line in its place, the check that fails, what it is told
    "turned": (GIVEN, "return values, keys", "numbers", "it returned (2, 3, 35, 6). Tokens are joined along dim=2"),
    "nothing": (GIVEN, "return keys", "numbers", "must return two tensors, keys and values; it returned Tensor"),
    "other": (GIVEN, "return keys, values.flip(0)", "numbers", "values of token 1 in sequence 1 came back as"),
    "wide": (
        GIVEN,
        "return keys.float(), values",
        "numbers",
        "are torch.bfloat16, and `_append` returned torch.float32",
    ),
    "nan": (GIVEN, "return keys / 0 * 0, values", "numbers", "are not finite"),
    "raising": (GIVEN, "return keys, values[9]", "numbers", "The code stopped with an error: line "),
    "square": (GIVEN, "return keys, values + (k.shape[1] < 2)", "heads", "With 1 KV head, the values of token 1"),
    "uncounted": ("self.seen += k.shape[2]", "self.seen += 1", "numbers", "`self.seen` must be 35; it is 1."),
    "dropping": ("self.held = min(", "self.held = min(9, ", "numbers", "needs the keys of 36 tokens, and `_append` re"),
    "forgetting": ("held = tokens if", "held = 1 if", "bytes", "`formula` gives 168 B, but the tensors of `filled()`"),
    "hiding": (KEPT, f"{KEPT}; self.more = keys + 1", "bytes", "in tensors that `filled()` does not name. Name them"),
    "hoarding": (NEW, "self.seen)", "windows", "after 100 tokens 100 are held and after 200 200. Drop what is behind"),
    "short": (NEW, "9 if self.window else self.seen)", "windows", "one of them is missing. Keep the newest 19"),
    "eager": (
        "self.held - tokens]",
        "self.held - tokens - 1]",
        "crop",
        "must see 54 tokens and the new one; it saw",
    ),
    "viewing": ("k.clone(), v.clone()", "k, v", "leak", "holds a view of the tensor that came, which keeps all of it"),
    "sharing": (KEPT, f"{KEPT}; LEFT.append(keys + 1)", "leak", "of tensors outlive it that the cache does not count"),
}


def first_failing(tmp_path, text):
    """The first part of the contract that a design's file does not meet."""
    (tmp_path / "mine.py").write_text(text)
    return next((found for found in check(own_design(tmp_path / "mine.py")) if not found.ok), None)


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTERS)
def test_a_solved_exercise_meets_the_contract_and_its_goal(name, tmp_path):
    assert first_failing(tmp_path, written("mine", name, solved=True)) is None


@pytest.mark.parametrize("name", UNSOLVED)
def test_an_exercise_as_it_stands_is_told_what_is_missing(name, tmp_path):
    failing, words = UNSOLVED[name]
    found = first_failing(tmp_path, written("mine", name))
    assert (found.name, found.ok) == (failing, False) and words in found.says


@pytest.mark.parametrize("name", WRONG)
def test_each_mistake_is_told_at_its_place(name, tmp_path):
    line, instead, failing, words = WRONG[name]
    text = written("mine", solved=True)
    assert line in text
    found = first_failing(tmp_path, text.replace(line, instead).replace("class Mine", "LEFT = []\n\n\nclass Mine"))
    assert (found.name, found.ok) == (failing, False) and words in found.says


@pytest.mark.parametrize("design", ["concat", "int4"])
def test_kvvizs_own_designs_meet_it(design):
    assert all(found.ok for found in check(DESIGNS[design]))


def test_each_exercise_has_a_goal_hints_and_a_file_without_its_solution():
    assert EXERCISES.keys() == GOALS.keys() and UNSOLVED.keys() == STARTERS.keys()
    for name, exercise in EXERCISES.items():
        begun, solved = written("mine", name), written("mine", name, solved=True)
        assert all(hint[:30] in " ".join(begun.split()) for hint in exercise.hints) and "Hints" not in solved
        assert "yours:" in begun and "yours:" not in solved
        assert not any(mark in text for text in (begun, solved) for mark in ("# solution", "# or, to", "# end"))
        assert max(map(len, begun.splitlines())) <= 120
