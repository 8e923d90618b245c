"""What speculation brought in a run, and what the formula of Leviathan et al. (2023, arXiv 2211.17192) expects.

If a proposal is accepted with the probability α, whatever came before, a forward that verifies γ proposals makes
1 + α + … + α^γ = (1 - α^(γ+1)) / (1 - α) tokens on average. Drafting them takes γ c steps of the model. Leviathan et
al. take the forward itself for one step, as it is where only reading the weights counts. On a processor a forward of
γ + 1 tokens takes longer: v steps, so that the tokens come (1 - α^(γ+1)) / ((1 - α) (γ c + v)) times as fast.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.base.words import brief, ratio
from kvviz.decoding.modes import title_of
from kvviz.experiments.comparison.figures import mark

Run = Mapping[str, Any]  # a document's run; a stored one may lack fields


@dataclass(frozen=True)
class Expected:
    """The expected speed-up of a mode that speculates, and what it is made of; `measured` is None without `cached`.

    `acceptance` is α, of the `tried` proposals; `proposals` γ, the mean over the forwards, and `alike`: it is each
    forward's. `tokens` are those that a forward makes by the formula, `draft_steps` is c and `forward_steps` v, the
    seconds of drafting one proposal and of a verifying forward over `step_s`, those of a forward of one token.
    """

    mode: str
    acceptance: float
    tried: int
    proposals: float
    alike: bool
    tokens: float
    draft_steps: float
    forward_steps: float
    step_s: float
    speedup: float
    measured: float | None


def expected(run: Run, usual: Run | None) -> Expected | None:
    """Expect a run's speed-up; None for one kept without its parts' seconds, or whose draft proposed nothing."""
    rows = run.get("verified") or ()
    forwards = sum(row["forwards"] for row in rows)
    proposals = sum(row["forwards"] * row["proposals"] for row in rows)
    if not proposals or not run["tried"]:
        return None

    def mean(values: list[float]) -> float:
        return sum(row["forwards"] * value for row, value in zip(rows, values, strict=True)) / forwards

    accepted, step_s = run["accepted"] / run["tried"], run["usual_s"]
    tokens = mean([sum(accepted**place for place in range(row["proposals"] + 1)) for row in rows])
    drafting, verifying = (mean([row[part] / step_s for row in rows]) for part in ("draft_s", "forward_s"))
    return Expected(
        mode=run["mode"],
        acceptance=accepted,
        tried=run["tried"],
        proposals=proposals / forwards,
        alike=len(rows) == 1,
        tokens=tokens,
        draft_steps=drafting * forwards / proposals,
        forward_steps=verifying,
        step_s=step_s,
        speedup=tokens / (drafting + verifying),
        measured=_measured(run, usual),
    )


def _measured(run: Run, usual: Run | None) -> float | None:
    """Return how many times as fast a run's tokens came as those of the `usual` one with a cache."""
    if usual is None or len(usual["step_s"]) != len(run["step_s"]):
        return None
    return statistics.fmean(usual["step_s"][1:]) / statistics.fmean(run["step_s"][1:])


def speculated(run: Run, usual: Run | None) -> str:
    """Say how many proposals a run accepted, what they brought against the `usual` run, and what was to be expected.

    Tokens per forward over what a forward costs, in steps of the usual run, is how much faster the tokens came.
    """
    accepted, drafted, made, forwards = run["accepted"], run["drafted"], len(run["step_s"]) - 1, run["steps"] - 1
    name = f"**{title_of(run['mode'])}**"
    if not drafted or not forwards:
        return f"{name}: nothing was proposed, so it decoded one token at a time."
    each, share = made / forwards, f"{accepted:,} of {drafted:,} proposals were accepted ({accepted / drafted:.0%})"
    words = f"{name}: {share}, so {forwards:,} forward passes made {made:,} tokens, {each:.3g} each."
    gain, found = _measured(run, usual), expected(run, usual)
    if gain is not None and usual is not None:
        came = f"{ratio(gain)} times as fast" if gain > 1 else f"at {gain:.0%} of its pace"
        less = "" if gain > 1 else ": too few were accepted for what they cost"
        words += (
            f" One forward pass with its proposals took {ratio(each / gain)} times a step of "
            f"{title_of(usual['mode'])}, so its tokens came {came}{less}."
        )
    if found:
        off = f", {_error(found)}" if found.measured else ""
        words += (
            f" Of the {found.tried:,} that were tried, {found.acceptance:.0%} were accepted (what follows a rejected "
            "one is not tried): by the formula of Leviathan et al. (2023), with what a forward pass of several tokens "
            f"takes here, that makes {ratio(found.speedup)} times as fast{off}."
        )
    if usual is not None and (mark(run) or mark(usual)):
        words += " ≈: other work disturbed these passes."
    return words if run.get("exact", True) else f"{words} Its tokens are sampled: same distribution, other draws."


def _error(found: Expected) -> str:
    off = found.speedup / (found.measured or math.nan) - 1
    return f"{abs(off):.0%} {'more' if off > 0 else 'less'} than measured"


def speedup_formula(entry: Mapping[str, Any]) -> str:
    """Write an expected speed-up as LaTeX, with its numbers."""
    found = Expected(**entry)
    share, guesses = f"{found.acceptance:.3g}", f"{found.proposals:.3g}"
    cost = rf"{guesses} \cdot {found.draft_steps:.2g} + {found.forward_steps:.3g}"
    words, numbers = r"\overline{1 + \alpha + \dots + \alpha^\gamma}", f"{found.tokens:.3g}"
    symbols, values = rf"\frac{{{words}}}{{\overline{{\gamma}} c + v}}", rf"\frac{{{numbers}}}{{{cost}}}"
    if found.alike and found.acceptance < 1:
        symbols = r"\frac{1 - \alpha^{\gamma + 1}}{(1 - \alpha)(\gamma c + v)}"
        values = rf"\frac{{1 - {share}^{{{found.proposals:.0f} + 1}}}}{{(1 - {share})({cost})}}"
    name = rf"S_{{\text{{{title_of(found.mode)}}}}}"
    return rf"\begin{{aligned}}{name} &= {symbols} \\ &= {values} = {found.speedup:.3g}\end{{aligned}}"


def formula_explained(entry: Mapping[str, Any]) -> str:
    """Say what stands in the formula of an expected speed-up, how far it is off, and why."""
    found = Expected(**entry)
    beside = f"Measured: {found.measured:.3g}; the formula says {_error(found)}. " if found.measured else ""
    mean = "" if found.alike else " on average, and what is overlined is a mean over the forward passes"
    classic = found.tokens / (found.proposals * found.draft_steps + 1)
    return (
        f"{title_of(found.mode)}: {beside}α: the share of the {found.tried:,} tried proposals that were accepted. γ: "
        f"proposals that a forward pass verifies{mean}. c: seconds of drafting one, and v: seconds of a forward pass "
        f"that verifies, over the {brief(found.step_s)} of one of a single token, all clocked by themselves. Leviathan "
        f"et al. (2023) take v for 1, as where only reading the weights counts: that would be {classic:.3g}. The "
        "formula takes every proposal to be accepted with the same probability, and leaves out what the decode loop "
        "itself does for each token."
    )
