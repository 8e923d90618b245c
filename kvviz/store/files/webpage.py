"""Writes a comparison as one HTML page with charts, figures and texts that opens from disk and fetches nothing.

Every text of a run is escaped. The page's content security policy allows its two inline scripts by their hashes, and no
address at all.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.decoding.modes import MODES
from kvviz.experiments.comparison.records import Document, Record, Run
from kvviz.store.files.reading import to_json

HERE = Path(__file__).resolve().parent
VENDOR = HERE.parents[1] / "ui" / "assets" / "vendor"


def to_html(document: Document, records: Sequence[Record] = ()) -> str:
    """Return the page. Raises KvvizError if plotly is not installed."""
    plotly = next(VENDOR.glob("plotly-basic-*.min.js")).read_text(encoding="utf-8")
    scripts = [_inline(script) for script in (plotly, (HERE / "page.js").read_text(encoding="utf-8"))]
    return Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(
        texts_of(document, records),
        css=(HERE / "page.css").read_text(encoding="utf-8"),
        hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts),
        figure=_data(json.dumps(_figure(document), allow_nan=False)),
        comparison=_data(to_json(records, document)),
        plotly=scripts[0],
        own=scripts[1],
    )


def _inline(script: str) -> str:
    """Escape a script for a <script> element, so that nothing in it can end the element."""
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", script, flags=re.IGNORECASE)


def _data(text: str) -> str:
    """Escape JSON text so that nothing in it can end the element that it lies in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _text(value: object) -> str:
    """Escape any value so that the page shows it as plain text."""
    whole = str(value).replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return html.escape(whole)


# --- text and tables ---------------------------------------------------------------------------------------------


def texts_of(document: Document, records: Sequence[Record]) -> dict[str, str]:
    """Return what stands between the page's charts, as HTML."""
    sentences = {"model": document["model"], "work": _work(document)}
    sentences |= {"identity": _identity(document), "method": _method(document)}
    return {
        **{name: _text(sentence) for name, sentence in sentences.items()},
        "table": _table(document),
        "texts": _texts(document, records),
        "environment": _environment(document),
    }


def _work(document: Document) -> str:
    environment = document["environment"]
    batch = f", batch {document['batch']}" if document["batch"] > 1 else ""
    return (
        f"Weights: {document['weights']}. Prompt of {document['prompt_tokens']:,} tokens, {document['new_tokens']:,} "
        f"new tokens{batch}, {environment['dtype']} on {environment['device_name']} ({environment['device']})."
    )


def _method(document: Document) -> str:
    repeats, warmup = document["repeats"], document["warmup"]
    reference = next(run for run in document["runs"] if run["mode"] == document["reference"])
    return (
        f"Median of {repeats} timed {'pass' if repeats == 1 else 'passes'} at each step, the band their quartiles; "
        f"passes before them that were not timed: {warmup}. Step 1 is the prefill; speed-up is against "
        f"{_title(reference)}. Drag to zoom all four charts, double-click to see all; the camera saves a PNG, the disk "
        "an SVG."
    )


def _identity(document: Document) -> str:
    """Say whether all modes chose the same tokens, and if not, where each first differed."""
    parted = [_parting(run, step) for run in document["runs"] if (step := run["first_divergence"]) is not None]
    return " ".join(parted) or "All modes chose the same tokens."


def _parting(run: Run, step: int) -> str:
    margin = run.get("divergence_margin")
    near = "" if margin is None else f", where the two best logits lay {margin:.3g} apart"
    return f"{_title(run)}: another token at new token {step + 1}{near}."


def _title(run: Run) -> str:
    mode = MODES.get(run["mode"])
    return mode.title if mode else run["mode"]


_COLUMNS = ("mode", "first token", "each further token", "tokens/s", "whole run", "speed-up", "cache at the end")


def _table(document: Document) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    rows = "".join(f"<tr>{_cells(run, number)}</tr>" for number, run in enumerate(document["runs"]))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(run: Run, number: int) -> str:
    values = (
        _seconds(run["ttft_s"]),
        _seconds(run["itl_s"]),
        f"{run['tokens_per_s']:,.1f}",
        _seconds(run["total_s"]),
        "–" if run["speedup"] is None else f"{run['speedup']:.2f}×",
        human(run["cache_bytes"][-1]),
    )
    dot = f'<span class="dot" style="background:{_colour(run, number)}"></span>'
    return f"<td>{dot}{_text(_title(run))}</td>" + "".join(f"<td>{_text(value)}</td>" for value in values)


def _seconds(s: float | None) -> str:
    if s is None:
        return "–"
    return f"{s:.2f} s" if s >= 1 else f"{s * 1000:.1f} ms" if s >= 0.01 else f"{s * 1000:.3f} ms"


def _texts(document: Document, records: Sequence[Record]) -> str:
    """Render the prompt and the text of each mode; modes with the same text share one copy."""
    started = next((record for record in records if record["t"] == "started"), None)
    prompt = document["prompt"] if document["prompt"] is not None or started is None else started["prompt"]["text"]
    unknown = f"{document['prompt_tokens']:,} random tokens"
    parts = [f"<h2>Prompt</h2>{_pre(unknown if prompt is None else prompt)}<h2>Text</h2>"]
    groups: dict[str, list[str]] = {}
    for run in document["runs"]:
        groups.setdefault(_joined(run["text"]), []).append(_title(run))
    for text, modes in groups.items():
        parts.append(f"<h3>{_text(', '.join(modes))}</h3>{_pre(text)}")
    return "".join(parts)


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "\n\n".join(text)


def _pre(text: str) -> str:
    return f'<pre dir="auto">\n{_text(text)}</pre>'


def _environment(document: Document) -> str:
    rows = {**document["environment"], "config": document.get("config_hash"), "comparison": document["id"]}
    cells = ((name.replace("_", " "), value) for name, value in rows.items() if value is not None)
    return "".join(f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>' for name, value in cells)


# --- the charts --------------------------------------------------------------------------------------------------


def _figure(document: Document) -> dict[str, object]:
    """Return the charts as plain values, each mode in its own colour, with the colours for a dark page."""
    try:
        from kvviz.charts.compare import curve_of, overlay
    except ImportError as error:
        raise KvvizError("the page's charts need plotly, which is not installed here; take json or csv") from error
    runs = document["runs"]
    baseline = next((i for i, run in enumerate(runs) if run["mode"] == document["reference"]), 0)
    curves = [curve_of(run, run["cache_bytes"], document["prompt_tokens"], _title(run)) for run in runs]
    figure = overlay(curves, baseline=baseline)
    plain = json.loads(figure.to_json())
    layout = {name: value for name, value in plain["layout"].items() if name != "template"}
    return {
        "traces": [_in_colour(trace, runs) for trace in plain["data"]],
        "layout": layout,
        "dark": {colour: palette.DARK[mode] for mode, colour in palette.LIGHT.items()},
        "filename": f"kvviz-{re.sub(r'[^A-Za-z0-9_-]', '', document['id'])[:40]}",
    }


def _in_colour(trace: dict[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """Give a trace of `overlay` its mode's colour and dash; the trace's legend group is the index of its run."""
    number = int(trace["legendgroup"])
    run, line = runs[number], trace.get("line", {})
    dash = palette.DASH.get(run["mode"], line.get("dash"))
    colours = {"line": {**line, "color": _colour(run, number), "dash": dash}} if line else {}
    return {**trace, **colours, **({"fillcolor": _colour(run, number)} if "fillcolor" in trace else {})}


def _colour(run: Run, number: int) -> str:
    return palette.LIGHT.get(run["mode"], palette.SERIES[number % len(palette.SERIES)])
