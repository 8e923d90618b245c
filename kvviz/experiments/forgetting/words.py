"""Turns what designs forgot into sentences and lines. Standard library only."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from kvviz.base.words import human, small
from kvviz.models.sources import weights_in_words

Document = Mapping[str, Any]


def kl_of(run: Document, budget: str) -> float:
    """The mean KL of a design within a budget, in nats."""
    return fmean(run["budgets"][budget]["kl"])


def lost_of(run: Document) -> float:
    """The share of attention that fell on evicted tokens, as a mean over layers and queries."""
    return fmean(fmean(layer) for layer in run["lost"])


def lost_claim(found: Document, run: Document) -> str:
    """Say how much of the attention would have gone to what one design has evicted."""
    kept, lost = found["budget"], f"{lost_of(run):.0%}"
    tokens = len(run["lost"][0])
    end = fmean(fmean(layer[-max(1, tokens // 10) :]) for layer in run["lost"])
    gone = f"{lost} of the attention would have gone to tokens that it evicted, {end:.0%} in the last tenth of the text"
    return f"“{run['title']}” keeps {kept} of the tokens; {gone}"


def first_telling(runs: Sequence[Document]) -> Document:
    """Return the first design that does not evict the same tokens in all layers and heads; the first if each does."""
    for run in runs:
        gone, rows = b64decode(run["gone"]), len(run["layers"]) * run["heads"]
        size = len(gone) // rows
        if any(gone[i * size : (i + 1) * size] != gone[:size] for i in range(rows)):
            return run
    return runs[0]


def claim(found: Document) -> str:
    """Say which design loses least within the asked budget, and how chance compares."""
    budget = found["budget"]
    best, worst = (pick(found["runs"], key=lambda run: kl_of(run, budget)) for pick in (min, max))
    if best is worst:
        return f"{best['title']} loses {small(kl_of(best, budget))} nats of KL"
    return f"“{best['title']}” loses least with equally many tokens kept, “{worst['title']}” most"


def text(found: Document) -> str:
    """Format the document for a terminal."""
    tokens = len(found["pieces"])
    whole = f"{tokens:,} tokens; all of them {human(found['whole_bytes'])}, "
    head = f"{found['title']}, {weights_in_words(found['weights'])}: {whole}"
    lines = [f"{head}perplexity {found['perplexity']:.4g}", ""]
    for run in found["runs"]:
        for said, one in run["budgets"].items():
            lost = f", {lost_of(run):.1%} of attention lost" if said == found["budget"] else ""
            lines.append(
                f"{run['mode']:10} {said:>5} ({one['tokens']} tokens): holds {human(one['nbytes'])}, KL "
                f"{fmean(one['kl']):.2g} nats, perplexity {one['perplexity']:.4g}{lost}"
            )
    return "\n".join([*lines, "", f"{claim(found)}."])
