"""Compares stored runs: their ratios to a baseline, and the differences in their work.

A ratio is the baseline's seconds over the run's, so 2 means twice as fast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvviz.base.words import ratio
from kvviz.decoding.modes import title_of
from kvviz.store.db.stored import Run, Stored


@dataclass(frozen=True)
class Row:
    """A run under its label, with its ratios to the baseline.

    Whole runs of different numbers of tokens have no ratio. `beyond` says whether the difference exceeds the spread of
    the repeats; None for the baseline and for too few repeats.
    """

    name: str
    run: Run
    total_ratio: float | None
    itl_ratio: float | None
    beyond: bool | None


def names(runs: Sequence[Run]) -> list[str]:
    """Return a label for each run, as short as possible but distinct."""
    parts: tuple[Callable[[Run], str], ...] = (
        lambda run: run.comparison.title or run.comparison.model,
        lambda run: f"{run.comparison.prompt_tokens} + {run.comparison.new_tokens} tokens",
        lambda run: run.comparison.device_name or run.comparison.device,
        lambda run: run.comparison.device,  # two cards of one kind
        lambda run: run.comparison.dtype,
        lambda run: f"{run.comparison.created:%Y-%m-%d}",
        lambda run: f"{run.comparison.created:%H:%M:%S}",
        lambda run: run.id,
    )
    labels, alone = [_title(run) for run in runs], len(runs) == 1
    for part in parts[:1] if alone else parts:
        words = [part(run) for run in runs]
        if alone or (len(set(labels)) < len(labels) and len(set(words)) > 1):
            labels = [f"{label}, {word}" for label, word in zip(labels, words, strict=True)]
    return labels


def _title(run: Run) -> str:
    """Return the title of a run's mode; of a server's run the engine and its version, if it told them."""
    return title_of(run.mode, run.figures.get("engine"))


def rows(runs: Sequence[Run], labels: Sequence[str], baseline: int) -> list[Row]:
    """Return one row per run, compared with the run at index `baseline`."""
    base, found = runs[baseline], []
    for run, label in zip(runs, labels, strict=True):
        total, itl = (_ratio(base.figures.get(name), run.figures.get(name)) for name in ("total_s", "itl_s"))
        alike = _made(run) == _made(base)
        total, beyond = total if alike else None, beyond_spread(base, run) if alike and run.id != base.id else None
        found.append(Row(label, run, total, itl, beyond))
    return found


def _made(run: Run) -> int:
    """Number of new tokens that a run made; one that was stopped, or that met an end token, made fewer than asked."""
    return len(run.figures.get("step_s", ()))


def _ratio(base: float | None, own: float | None) -> float | None:
    return base / own if base and own else None


def beyond_spread(one: Run, other: Run) -> bool | None:
    """Whether the passes of the two runs do not overlap in time taken; None if either run has fewer than two."""
    ours, theirs = ([sum(seconds) for seconds in run.repeats] for run in (one, other))
    if len(ours) < 2 or len(theirs) < 2:
        return None
    return max(ours) < min(theirs) or max(theirs) < min(ours)


UNLIKE = 1.5  # a run whose steps took this many times as long as those of a like run was measured beside other work


def like_runs(timed: Sequence[tuple[Stored, str, float | None]]) -> list[float | None]:
    """Compare the ITL of each run, given with its comparison and mode, with the fastest of the same work and device.

    A server's run is held against none, since it may be another server's.
    Returns how many times as long its steps took, or None up to UNLIKE times.
    """
    fastest: dict[tuple[object, ...], float] = {}
    keys = [(mode, *(read(stored) for _, read in _WORK)) for stored, mode, _ in timed]
    for key, (_, _, seconds) in zip(keys, timed, strict=True):
        if seconds:
            fastest[key] = min(seconds, fastest.get(key, seconds))
    ratios = [
        seconds / fastest[key] if seconds and mode != "endpoint" else 1.0
        for key, (_, mode, seconds) in zip(keys, timed, strict=True)
    ]
    return [ratio if ratio > UNLIKE else None for ratio in ratios]


SLOWER = 1.05  # like runs whose times differ by less need no explanation


def apart(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """Name runs of the same work, mode and device whose times differ by more than their passes spread, and say why.

    Each such work gets one sentence, on its slowest run beside its fastest. Servers are left out: what they do besides,
    and on which machine, is not seen.
    """
    alike: dict[tuple[object, ...], list[tuple[float, str, Run]]] = {}
    for run, label in zip(runs, labels, strict=True):
        if run.figures.get("total_s") and run.mode != "endpoint":
            key = (run.mode, *(read(run.comparison) for _, read in _WORK), *(read(run) for _, read in _HOW))
            alike.setdefault(key, []).append((run.figures["total_s"], label, run))
    found = []
    for rows_alike in alike.values():
        least, fast, one = min(rows_alike, key=lambda row: row[0])
        most, slow, other = max(rows_alike, key=lambda row: row[0])
        if most > SLOWER * least and beyond_spread(one, other):
            found.append(
                f"{slow} took {ratio(most / least)} times as long as {fast}, the same work. {_why_slower(other)}"
            )
    return found


def _why_slower(run: Run) -> str:
    passes = run.figures.get("passes")
    if not passes:
        return "How disturbed it was is not known; measure it again before you hold it against another."
    if not passes["clean"]:
        return "Other work disturbed every pass of it: measure it again before you hold it against another."
    return (
        "No other work took a core from it, so the device itself was slower: its clock, its temperature, or others "
        "that use the same memory."
    )


_WORK: tuple[tuple[str, Callable[[Stored], object]], ...] = (
    ("models", lambda c: c.model),
    ("weights", lambda c: c.weights),
    ("prompt lengths", lambda c: c.prompt_tokens),
    ("prompts", lambda c: c.prompt),
    ("numbers of new tokens", lambda c: c.new_tokens),
    ("batches", lambda c: c.batch),
    ("precisions", lambda c: c.dtype),
    ("devices", lambda c: c.device_name or c.device),
)


_HOW: tuple[tuple[str, Callable[[Run], object]], ...] = (
    ("numbers of tokens made", _made),
    ("ways to choose a token", lambda run: _chosen(run.spec.get("sampling") or {})),
    ("attention", lambda run: run.spec.get("attn", "not known")),
    ("places to stop", lambda run: _stop(run.spec)),
)


def _chosen(sampling: Mapping[str, object]) -> str:
    if not sampling.get("temperature"):
        return "greedy"
    return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in sampling.items() if value is not None)


def _stop(spec: Mapping[str, object]) -> str:
    said = (spec.get("stop_at_eos") and "at the end token", spec.get("stop_text") and f"at {spec['stop_text']!r}")
    return " or ".join(filter(None, map(str, filter(None, said)))) or "none"


def differences(runs: Sequence[Run]) -> list[str]:
    """Name in words each property of the work in which the runs differ."""
    found = []
    work = ((what, [read(run.comparison) for run in runs]) for what, read in _WORK)
    how = ((what, [read(run) for run in runs]) for what, read in _HOW)
    for what, each in (*work, *how):
        values = list(dict.fromkeys(map(str, each)))
        if len(values) > 1:
            found.append(f"other {what}: {', '.join(_from_the_edit(values))}")
    return found


def _from_the_edit(values: Sequence[str]) -> list[str]:
    """The values, none longer than 40 characters: long ones from shortly before the first that differs."""
    if max(map(len, values)) <= 40:
        return list(values)
    apart_at = (place for place, letters in enumerate(zip(*values, strict=False)) if len(set(letters)) > 1)
    begins = max(0, next(apart_at, min(map(len, values))) - 12)
    cut = [f"{'…' * bool(begins)}{value[begins:]}" for value in values]
    return [value if len(value) <= 40 else value[:37] + "…" for value in cut]
