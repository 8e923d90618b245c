"""A sweep by formula counts what the cost page counts."""

from kvviz.cost.shorthand import Case, run_flops
from kvviz.experiments.sweep.by_formula import FEWEST, MOST, counted
from kvviz.experiments.sweep.spec import SweepSpec


def test_the_work_of_a_cell_is_the_full_count_and_its_cache_the_formula():
    found = counted(SweepSpec(models=("gpt2",), prompt_tokens=(8, 16), new_tokens=(4,)))
    assert [(row["mode"], row["prompt_tokens"]) for row in found[:2]] == [("uncached", 8), ("cached", 8)]
    for without, within in (found[:2], found[2:]):
        case = Case(model="gpt2", prompt=without["prompt_tokens"], new=4)
        assert (without["flops"], within["flops"]) == tuple(sums[-1] for sums in run_flops(case))
        assert within["cache_bytes"] == 2 * 12 * 768 * 4 * (case.prompt + 3)


def test_a_single_cell_is_drawn_as_a_line_and_too_much_work_not_at_all():
    single = SweepSpec(models=("gpt2",), prompt_tokens=(8,), new_tokens=(12,))
    assert [row["new_tokens"] for row in counted(single)][::2] == [4, 8, 12][:FEWEST]
    assert counted(SweepSpec(models=("gpt2",), new_tokens=(MOST,))) == []
