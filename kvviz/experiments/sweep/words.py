"""Writes a sweep as text: its table, the published figures and the trends. Standard library only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.experiments.sweep.spec import PRESETS, SweepSpec, find_sources
from kvviz.experiments.sweep.trends import FIGURES, beside, caveats, contrasts, findings, reasons, shown

Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]


def sweep_text(document: Mapping[str, Any]) -> str:
    """Write the whole report of a sweep's document."""
    spec = SweepSpec.from_dict(document["spec"])
    rows, preset = document["rows"], PRESETS.get(spec.preset)
    blocks = [_heading(document, spec), table(rows, _columns(spec))]
    blocks += [_lines([f"{failed['name']}: {failed['message']}" for failed in document["failed"]])]
    blocks += [_lines(findings(rows))]
    if preset is not None and preset.published is not None:
        blocks += [f"Published ({preset.published.note}):\n{_published(rows, preset)}"]
        blocks += [_lines(contrasts(rows, preset.published))]
    blocks += [_lines(caveats(rows))]
    blocks += [_lines(why(spec, document["rates"]))]
    return "\n\n".join(block for block in blocks if block)


def why(spec: SweepSpec, rates: Mapping[str, float] | None) -> list[str]:
    """Say for each model what bounds a step over one token and a step over the longest sequence."""
    if not rates:
        return []
    longest = max(spec.prompt_tokens) + max(spec.new_tokens)
    try:
        sources = find_sources(spec).values()
    except KvvizError:  # a local model may have been deleted since the sweep
        return []
    return [sentence for source in sources if (sentence := reasons(source, spec.dtypes[0], (1, longest), rates))]


def _heading(document: Mapping[str, Any], spec: SweepSpec) -> str:
    place = document["environment"]
    title = f"{PRESETS[spec.preset].title}\n{PRESETS[spec.preset].question}\n" if spec.preset else ""
    threads = f"{place['threads']} thread{'s' if place['threads'] > 1 else ''}"
    where = f"{place['device_name']}, {threads}, torch {place['torch']}"
    return f"{title}{', '.join(spec.models)} in {', '.join(spec.dtypes)} on {where}"


def _columns(spec: SweepSpec) -> list[Column]:
    """The columns that this sweep needs; the heading has the model and dtype that do not vary."""
    varying: list[tuple[bool, Column]] = [
        (len(spec.models) > 1, ("model", lambda row: row["model"])),
        (len(spec.dtypes) > 1, ("dtype", lambda row: row["dtype"])),
        (len(spec.batches) > 1, ("batch", lambda row: str(row["batch"]))),
    ]
    return [
        *(column for varies, column in varying if varies),
        ("prompt", lambda row: f"{row['prompt_tokens']:,}"),
        ("new", lambda row: f"{row['new_tokens']:,}"),
        ("mode", lambda row: row["mode"]),
        ("TTFT", _figure("ttft_s")),
        ("per token", _figure("itl_s")),
        ("quartiles", lambda row: f"{shown('itl_s', row['itl_s_q1'])} – {shown('itl_s', row['itl_s_q3'])}"),
        ("mean", _figure("itl_mean_s")),
        ("tokens/s", _figure("tokens_per_s")),
        ("whole", _figure("total_s")),
        ("peak", _figure("peak_bytes")),
        ("cache", _figure("cache_bytes")),
        ("speed-up", _figure("speedup")),
        ("same tokens", lambda row: "yes" if row["identical"] and row["repeatable"] else "NO"),
        ("repeats", lambda row: str(row["repeats"])),
    ]


def _figure(name: str) -> Callable[[Row], str]:
    return lambda row: shown(name, row.get(name))


def _figure_here(name: str) -> Callable[[Row], str]:
    return lambda row: shown(name, (row["here"] or {}).get(name))


def _published(rows: Sequence[Row], preset: Any) -> str:
    """A table of the published figures, each beside the figure measured here for the same work."""
    pairs = beside(rows, preset.published)
    named = [name for name in FIGURES if any(name in row for row in pairs)]
    columns: list[Column] = [
        ("prompt", lambda row: f"{row['prompt_tokens']:,}"),
        ("new", lambda row: f"{row['new_tokens']:,}"),
        ("mode", lambda row: row["mode"]),
    ]
    for name in named:
        columns.append((FIGURES[name], _figure(name)))
        if name != "operations":  # this count does not depend on the machine
            columns.append(("here", _figure_here(name)))
    return table(pairs, columns)


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Format aligned columns, with words to the left and figures to the right."""
    cells = [[head for head, _ in columns], *([show(row) for _, show in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = [head in ("model", "dtype", "mode") for head, _ in columns]
    lines = [
        "  ".join(
            text.ljust(width) if word else text.rjust(width)
            for text, width, word in zip(line, widths, left, strict=True)
        )
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _lines(sentences: Sequence[str]) -> str:
    return "\n".join(sentences)
