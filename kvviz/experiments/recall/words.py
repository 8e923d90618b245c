"""Turns a recall measurement into rows with intervals, sentences and text. Standard library only."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb, sqrt
from typing import Any

from kvviz.base.words import human
from kvviz.experiments.recall.spec import TEXTS_BEFORE

Document = Mapping[str, Any]  # a measurement's document, or one of its rows
Z = 1.96  # standard errors of a 95% interval
LEVEL = 0.05  # chance of a wrong word in all
MORE = 1.1  # times a budget's share: codes come in steps, so those that hold a little more stand beside it
QUARTER = 25  # percent: the budget at which designs are held against each other in a sentence


def wilson(right: int, asked: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share: what shares would make so many right answers no surprise.

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
    differ = wins + losses
    return min(1.0, 2 * sum(comb(differ, k) for k in range(min(wins, losses) + 1)) / 2**differ)


def letters(held: Sequence[Document]) -> dict[str, str]:
    """Return letters for rows, by mode: two rows share one if the questions can't tell them apart; A is the best's.

    With a chance of at most 5% in all, shared out among the pairs (Bonferroni), two without a common letter differ by
    chance. This is the compact letter display of https://doi.org/10.1198/1061860043515
    """
    ranked = sorted(held, key=lambda row: -row["recalled"])
    alike = [frozenset(range(len(ranked)))]
    for pair in apart(ranked):
        split = [group - {one} if pair <= group else group for group in alike for one in pair]
        alike = [group for group in dict.fromkeys(split) if not any(group < other for other in split)]
    named = enumerate(sorted(alike, key=sorted))
    found = [(chr(ord("A") + number), group) for number, group in named]
    return {row["mode"]: "".join(name for name, group in found if i in group) for i, row in enumerate(ranked)}


def apart(held: Sequence[Document]) -> list[frozenset[int]]:
    """Return the pairs of rows, by their numbers, that the sign test tells apart, at LEVEL for all pairs together."""
    pairs = list(combinations(range(len(held)), 2))
    return [frozenset(pair) for pair in pairs if by_chance(*(held[i] for i in pair)) < LEVEL / len(pairs)]


def comparable(found: Document, percent: int = QUARTER) -> list[Document]:
    """Return the rows of a budget, and of codes that hold at most MORE times its share of the bytes, the best first."""
    return sorted([*at_budget(found, percent), *_codes(found, percent)], key=lambda row: -row["recalled"])


def lettered(found: Document, percent: int = QUARTER) -> dict[str, str]:
    """Return the `letters` of a budget, by mode."""
    return letters(comparable(found, percent))


def unsteady(found: Document) -> tuple[int, list[tuple[int, str, str]]]:
    """Return how many pairs are told apart at all budgets, and those of them that a seed alone would order otherwise.

    Each of these is a budget in percent and the titles of the two, the better one first.
    """
    count, otherwise = 0, list[tuple[int, str, str]]()
    for percent in budgets_of(found):
        held = comparable(found, percent)
        for i, j in map(sorted, apart(held)):
            count += 1
            if any(a <= b for a, b in zip(held[i]["by_seed"], held[j]["by_seed"], strict=True)):
                otherwise.append((percent, held[i]["title"], held[j]["title"]))
    return count, otherwise


def budgets_of(found: Document) -> list[int]:
    """Return the budgets in percent, the smallest first."""
    return sorted({row["percent"] for row in found["rows"]} - {None})


def seen_before(found: Document) -> list[tuple[Document, Document, bool]]:
    """Return for each design that was asked in both ways its rows after and before, and whether they are told apart.

    Both rows are about the questions that were asked in both ways.
    """
    both = [i for i, question in enumerate(found["questions"]) if question.get("text", 0) < TEXTS_BEFORE]
    questions = [found["questions"][i] for i in both]
    after = {
        (row["mode"], row["percent"]): _counted({**row, "right": [row["right"][i] for i in both]}, questions)
        for row in found["rows"]
    }
    before = [_counted(row, questions) for row in found.get("before", [])]
    pairs = [(after[key], row) for row in before if (key := (row["mode"], row["percent"])) in after]
    return [(one, other, by_chance(one, other) < LEVEL / len(pairs)) for one, other in pairs]


def rows(found: Document) -> list[Document]:
    """Return each row with its counts: `recalled` of `asked`, the `accuracy`, its interval, `by_seed` and `by_kind`."""
    return [_counted(row, found["questions"]) for row in found["rows"]]


def _counted(row: Document, questions: Sequence[Document]) -> Document:
    recalled, asked = sum(row["right"]), len(row["right"])
    low, high = wilson(recalled, asked)
    by_seed, by_kind = dict[int, int](), dict[str, list[int]]()
    for right, question in zip(row["right"], questions, strict=True):
        by_seed[question["seed"]] = by_seed.get(question["seed"], 0) + right
        kind = by_kind.setdefault(question.get("kind", "name"), [0, 0])
        kind[:] = kind[0] + right, kind[1] + 1
    figures = {"recalled": recalled, "asked": asked, "accuracy": recalled / asked, "low": low, "high": high}
    return {**row, **figures, "by_seed": [by_seed[seed] for seed in sorted(by_seed)], "by_kind": by_kind}


def kinds_said(row: Document) -> str:
    """Say of a row's counts how many of each kind it recalls: "59 of 60 names, 60 of 60 numbers"."""
    return ", ".join(f"{right} of {asked} {kind}s" for kind, (right, asked) in sorted(row["by_kind"].items()))


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
    """The rows without a budget that hold at most MORE times the share of one, the best first."""
    codes = [row for row in rows(found)[1:] if row["percent"] is None and _fits(row, percent)]
    return sorted(codes, key=lambda row: -row["recalled"])


def _fits(row: Document, percent: int) -> bool:
    return 100 * row["share"] <= MORE * percent


def of_interval(found: Document) -> str:
    """Say what the interval of a bar is, and that it takes facts of one text for independent."""
    asked, texts = len(found["questions"]), len({(one["seed"], one.get("text", 0)) for one in found["questions"]})
    alike = f"; it counts the {asked:,} facts as independent, though they come from {texts:,} text{'s' * (texts > 1)}"
    said = "The mark on a bar is Wilson's 95% interval, how far chance alone may move it"
    return f"{said}{alike if texts < asked else ''}."


def claim(found: Document, percent: int = QUARTER) -> str:
    """Say what the best codes recall in a budget, and the best design that evicts; without codes, also the worst."""
    full = rows(found)[0]
    codes, evicting = _codes(found, percent)[:1], at_budget(found, percent)
    ends = [*codes, *evicting[:1]] if codes else [*evicting[:1], *evicting[1:][-1:]]
    if not ends:
        return f"Asked at the end of the text, the full cache recalls {full['recalled']} of {full['asked']} facts"
    best, *others = sorted(ends, key=lambda row: -row["recalled"])
    every = f"all {best['asked']}" if best["recalled"] == best["asked"] else f"{best['recalled']} of {best['asked']}"
    dtype = found["environment"]["dtype"]
    led = f"“{best['title']}” recalls {every} facts with {best['share']:.0%} of a {dtype} cache"
    return led + "".join(f"; “{row['title']}” recalls {row['recalled']} with {row['share']:.0%}" for row in others)


def of_rotation(found: Document) -> str:
    """Say whether the rotation helps codes of 2 bits to recall more, by the sign test; '' if both did not run."""
    both = {row["mode"]: row for row in rows(found) if row["mode"] in ("int2", "rotated2")}
    if len(both) < 2:
        return ""
    plain, rotated = both["int2"], both["rotated2"]
    counts = f"{rotated['recalled']} facts with it, {plain['recalled']} without"
    if by_chance(rotated, plain) >= LEVEL:
        return f"Here these questions do not tell whether it helps: {counts} (sign test)."
    return f"Here it {'helps' if rotated['recalled'] > plain['recalled'] else 'harms'}: {counts} (sign test)."


def sentences(found: Document) -> list[str]:
    """Summarise a measurement in Markdown sentences."""
    full, *others = rows(found)
    said = [
        f"The full cache, {human(full['nbytes'])}, recalls {full['recalled']} of {full['asked']} facts "
        f"({kinds_said(full)}): the ceiling for every design."
    ]
    for percent in budgets_of(found):
        held, named = comparable(found, percent), lettered(found, percent)
        listed = ", ".join(f"“{row['title']}” {row['recalled']} ({named[row['mode']]})" for row in held)
        said.append(f"At {percent}% of the tokens: {listed}.")
    said += steadiness(found)
    said += [
        f"“{row['title']}” recalls {row['recalled']} with {row['share']:.0%} of the bytes."
        for row in others
        if row["percent"] is None
    ]
    if pairs := seen_before(found):
        listed = ", ".join(
            f"“{one['title']}” {other['recalled']} instead of {one['recalled']}{'' if sure else ' (unsure)'}"
            for one, other, sure in pairs
        )
        said.append(f"Asked before the cache shrinks to {pairs[0][0]['percent']}%: {listed}.")
    return said


def steadiness(found: Document) -> list[str]:
    """Say what a common letter means, and whether each seed alone orders the others as all together do."""
    count, otherwise = unsteady(found)
    if not budgets_of(found):
        return []
    asked, seeds = len(found["questions"]), len({question["seed"] for question in found["questions"]})
    said = [
        f"A letter in common: these {asked} questions don't tell the two apart (sign test, at most {LEVEL:.0%} for all "
        "pairs of a budget together)."
    ]
    if count and seeds > 1:
        pairs = ", ".join(f"“{better}” and “{worse}” at {percent}%" for percent, better, worse in otherwise)
        but = f" all but {pairs}" if otherwise else " all of them"
        said.append(f"{count} pairs are told apart, and each of {seeds} seeds alone puts{but} in the same order.")
    return said


def how_sure(found: Document) -> str:
    """Say in a sentence how many differences are more than chance, and whether each seed alone orders them so."""
    count, otherwise = unsteady(found)
    seeds = len({question["seed"] for question in found["questions"]})
    pairs = "1 pair of designs differs" if count == 1 else f"{count} pairs of designs differ"
    said = f"Within one budget, {pairs} by more than chance explains"
    if count and seeds > 1:
        but = f"all but {len(otherwise)}" if otherwise else "every one"
        said += f", and each of the {seeds} seeds, with texts of its own, orders {but} the same way"
    return f"{said}."


def before_claim(found: Document) -> str:
    """Say which design gains most from a question that it has read before it evicts."""
    after, before, sure = max(seen_before(found), key=lambda pair: pair[1]["recalled"] - pair[0]["recalled"])
    if not sure or before["recalled"] <= after["recalled"]:
        return "No design gains from a question that it reads before it evicts"
    return (
        f"of the {before['asked']} facts that were asked both ways, “{before['title']}” recalls {before['recalled']} "
        f"if it reads the question before it evicts, not {after['recalled']}"
    )


def text(found: Document) -> str:
    """Write a measurement as text: a line for each design and budget, then the sentences."""
    asked, tokens = len(found["questions"]), found["tokens"]
    head = f"{found['title']}: {asked} facts, each stated in a text of about {tokens:,.0f} tokens"
    lines = [f"{'design':<24} {'budget':>7} {'bytes':>7} {'recalled':>10}  95% interval (Wilson)   by seed"]
    for row in rows(found):
        budget = "–" if row["percent"] is None else f"{row['percent']}%"
        right = f"{row['recalled']}/{row['asked']}"
        reach = f"{row['low']:>6.0%} to {row['high']:<14.0%} {' '.join(map(str, row['by_seed']))}"
        lines.append(f"{row['title']:<24} {budget:>7} {row['share']:>7.0%} {right:>10}  {reach}")
    return "\n".join([head, "", *lines, "", *sentences(found)])
