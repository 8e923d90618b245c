"""Turns a recall measurement into rows with intervals, sentences and text. Standard library only."""

from collections.abc import Mapping, Sequence
from math import comb, sqrt
from typing import Any

from kvviz.base.words import human

Document = Mapping[str, Any]  # a measurement's document, or one of its rows
Z = 1.96  # standard errors of a 95 % interval
LEVEL = 0.05  # chance of a wrong word in all
QUARTER = 25  # percent: the budget at which designs are held against each other in a sentence


def wilson(right: int, asked: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share: what shares would make so many right answers no surprise.

    https://www.jstor.org/stable/2276774
    """
    share, spread = right / asked, Z * Z / asked
    middle = (share + spread / 2) / (1 + spread)
    half = sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def by_chance(one: Document, other: Document) -> float:
    """Return how likely chance alone makes two designs differ so, or more, on the same questions: the exact sign test.

    Only questions that one of them alone recalled count: each is heads or tails, if the two are equally good. That is
    McNemar's test with exact probabilities, https://doi.org/10.1007/BF02295996
    """
    pairs = list(zip(one["right"], other["right"], strict=True))
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    apart = wins + losses
    return min(1.0, 2 * sum(comb(apart, k) for k in range(min(wins, losses) + 1)) / 2**apart)


def groups(held: Sequence[Document]) -> list[list[Document]]:
    """Group rows, the best first: a group holds those that the questions can't tell apart from its best.

    With a chance of at most 5 % in all, shared out among the pairs (Bonferroni), no difference of two groups' best is
    one by chance.
    """
    ranked = sorted(held, key=lambda row: -row["recalled"])
    level = LEVEL / max(1, comb(len(ranked), 2))
    made: list[list[Document]] = []
    for row in ranked:
        if made and by_chance(made[-1][0], row) >= level:
            made[-1].append(row)
        else:
            made.append([row])
    return made


def lettered(found: Document, percent: int = QUARTER) -> dict[str, str]:
    """Return a letter for each design at a budget or of codes as small: two with the same one are not told apart."""
    made = groups([*at_budget(found, percent), *_codes(found, percent)])
    return {row["mode"]: chr(ord("A") + i) for i, group in enumerate(made) for row in group}


def seen_before(found: Document) -> list[tuple[Document, Document, bool]]:
    """Return for each design that was asked in both ways its rows after and before, and whether they are told apart."""
    earlier = [question["seed"] for question in found["questions"]]
    before = [_counted(row, earlier) for row in found.get("before", [])]
    after = {(row["mode"], row["percent"]): row for row in rows(found)}
    pairs = [(after[key], row) for row in before if (key := (row["mode"], row["percent"])) in after]
    return [(one, other, by_chance(one, other) < LEVEL / len(pairs)) for one, other in pairs]


def rows(found: Document) -> list[Document]:
    """Return each row with its counts: `recalled` of `asked`, the `accuracy`, its interval, and `by_seed`."""
    seeds = [question["seed"] for question in found["questions"]]
    return [_counted(row, seeds) for row in found["rows"]]


def _counted(row: Document, seeds: Sequence[int]) -> Document:
    recalled, asked = sum(row["right"]), len(row["right"])
    low, high = wilson(recalled, asked)
    by_seed = [
        sum(right for right, of in zip(row["right"], seeds, strict=True) if of == seed) for seed in sorted(set(seeds))
    ]
    figures = {"recalled": recalled, "asked": asked, "accuracy": recalled / asked, "low": low, "high": high}
    return {**row, **figures, "by_seed": by_seed}


def curves(found: Document) -> dict[str, list[Document]]:
    """Return the rows of each design, by mode, from the smallest cache to the largest, without the full cache."""
    made: dict[str, list[Document]] = {}
    for row in rows(found)[1:]:
        made.setdefault(row["mode"], []).append(row)
    return {mode: sorted(points, key=lambda row: row["share"]) for mode, points in made.items()}


def at_budget(found: Document, percent: int = QUARTER) -> list[Document]:
    """Return the rows of one budget, the best first."""
    held = [row for row in rows(found) if row["percent"] == percent]
    return sorted(held, key=lambda row: -row["recalled"])


def _codes(found: Document, percent: int) -> list[Document]:
    """The rows without a budget that hold no more than one would, the best first."""
    codes = [row for row in rows(found)[1:] if row["percent"] is None and 100 * row["share"] <= 1.1 * percent]
    return sorted(codes, key=lambda row: -row["recalled"])


def claim(found: Document) -> str:
    """Say who recalls most and least at a quarter of the cache, or the budget nearest to it; and codes as small."""
    full = rows(found)[0]
    whole = f"the full cache {full['recalled']} of {full['asked']} names"
    budgets = {row["percent"] for row in found["rows"]} - {None}
    if not budgets:
        return f"Asked at the end of the text, {whole} recalled"
    percent = min(budgets, key=lambda budget: abs(budget - QUARTER))
    codes = _codes(found, percent)
    evicting = at_budget(found, percent)
    ends = [*evicting[:1], *evicting[1:][-1:]]
    best, *others = sorted([*codes[:1], *ends], key=lambda row: -row["recalled"])
    share = "a quarter" if percent == QUARTER else f"{percent} %"
    most = f"With {share} of the cache or less, “{best['title']}” recalls {best['recalled']} of {best['asked']} names"
    listed = ", ".join(f"“{row['title']}” {row['recalled']}" for row in others)
    return f"{most}, {listed or whole}"


def sentences(found: Document) -> list[str]:
    """Summarise a measurement in Markdown sentences."""
    full, *others = rows(found)
    budgets = sorted({row["percent"] for row in others} - {None})
    said = [
        f"The full cache, {human(full['nbytes'])}, recalls {full['recalled']} of {full['asked']} names "
        f"({full['accuracy']:.0%}): the ceiling for every design."
    ]
    tied = False
    for percent in budgets:
        made = groups(at_budget(found, percent))
        tied = tied or any(len(group) > 1 for group in made)
        listed = "; then ".join(" ≈ ".join(f"“{row['title']}” {row['recalled']}" for row in group) for group in made)
        said.append(f"At {percent} % of the tokens: {listed}.")
    if tied:
        said.append(
            f"≈: these {full['asked']} questions don't tell a design apart from the first of its group (sign test, 95 "
            "% for all pairs together); more texts would tell more."
        )
    said += [
        f"“{row['title']}” recalls {row['recalled']} with {row['share']:.0%} of the bytes."
        for row in others
        if row["percent"] is None
    ]
    if pairs := seen_before(found):
        listed = ", ".join(
            f"“{one['title']}” {other['recalled']} instead of {one['recalled']}{'' if apart else ' (not told apart)'}"
            for one, other, apart in pairs
        )
        said.append(f"Asked before the cache shrinks to {pairs[0][0]['percent']} %: {listed}.")
    return said


def text(found: Document) -> str:
    """Write a measurement as text: a line for each design and budget, then the sentences."""
    asked, tokens = len(found["questions"]), found["tokens"]
    head = f"{found['title']}: {asked} names, each stated in a text of about {tokens:,.0f} tokens"
    lines = [f"{'design':<24} {'budget':>7} {'bytes':>7} {'recalled':>10}  95 % interval (Wilson)   by seed"]
    for row in rows(found):
        budget = "–" if row["percent"] is None else f"{row['percent']} %"
        right = f"{row['recalled']}/{row['asked']}"
        reach = f"{row['low']:>6.0%} to {row['high']:<14.0%} {' '.join(map(str, row['by_seed']))}"
        lines.append(f"{row['title']:<24} {budget:>7} {row['share']:>7.0%} {right:>10}  {reach}")
    return "\n".join([head, "", *lines, "", *sentences(found)])
