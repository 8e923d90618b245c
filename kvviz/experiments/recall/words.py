"""Turns a recall measurement into rows with intervals, sentences and text. Standard library only."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from kvviz.base.words import human

Document = Mapping[str, Any]  # a measurement's document, or one of its rows
Z = 1.96  # standard errors of a 95 % interval
QUARTER = 25  # percent: the budget at which designs are held against each other in a sentence


def wilson(right: int, asked: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share: what shares would make so many right answers no surprise.

    https://www.jstor.org/stable/2276774
    """
    share, spread = right / asked, Z * Z / asked
    middle = (share + spread / 2) / (1 + spread)
    half = sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


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


def claim(found: Document) -> str:
    """Say who recalls most and least at a quarter of the cache, or the budget nearest to it; and codes as small."""
    full = rows(found)[0]
    whole = f"the full cache {full['recalled']} of {full['asked']} names"
    budgets = {row["percent"] for row in found["rows"]} - {None}
    if not budgets:
        return f"Asked at the end of the text, {whole} recalled"
    percent = min(budgets, key=lambda budget: abs(budget - QUARTER))
    codes = [row for row in rows(found)[1:] if row["percent"] is None and 100 * row["share"] <= 1.1 * percent]
    codes.sort(key=lambda row: -row["recalled"])
    evicting = at_budget(found, percent)
    ends = [*evicting[:1], *evicting[1:][-1:]]
    best, *others = sorted([*codes[:1], *ends], key=lambda row: -row["recalled"])
    share = "a quarter" if percent == QUARTER else f"{percent} %"
    most = f"With {share} of the cache or less, “{best['title']}” recalls {best['recalled']} of {best['asked']} names"
    listed = ", ".join(f"“{row['title']}” {row['recalled']}" for row in others)
    return f"{most}, {listed or whole}"


def stable(found: Document, percent: int) -> bool:
    """Whether all seeds put the designs in the same order at a budget: no two of them contradict one another."""
    held = at_budget(found, percent)
    pairs = [(a["by_seed"], b["by_seed"]) for i, a in enumerate(held) for b in held[i + 1 :]]
    return all(min(x - y for x, y in zip(a, b, strict=True)) >= 0 for a, b in pairs)


def sentences(found: Document) -> list[str]:
    """Summarise a measurement in Markdown sentences."""
    full, *others = rows(found)
    budgets = sorted({row["percent"] for row in others} - {None})
    said = [
        f"The full cache, {human(full['nbytes'])}, recalls {full['recalled']} of {full['asked']} names "
        f"({full['accuracy']:.0%}): the ceiling for every design."
    ]
    for percent in budgets:
        held = ", ".join(f"“{row['title']}” {row['recalled']}" for row in at_budget(found, percent))
        alike = "all seeds put them in this order" if stable(found, percent) else "the seeds differ in the order"
        several = f"; {alike}" if len(full["by_seed"]) > 1 else ""
        said.append(f"At {percent} % of the tokens: {held}{several}.")
    said += [
        f"“{row['title']}” recalls {row['recalled']} with {row['share']:.0%} of the bytes."
        for row in others
        if row["percent"] is None
    ]
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
