"""Writes a comparison as one HTML page with charts, figures and texts that opens from disk and fetches nothing.

Every text of a run is escaped. The page's content security policy allows its two inline scripts by their hashes, and no
address at all.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, Template

from kvviz.base.errors import KvvizError
from kvviz.base.words import human
from kvviz.charts import palette
from kvviz.decoding.modes import title_of
from kvviz.experiments.comparison.records import Document, Record, Run
from kvviz.store.files.reading import to_json

HERE = Path(__file__).resolve().parent
VENDOR = HERE.parents[1] / "ui" / "assets" / "vendor"


def to_html(document: Document, records: Sequence[Record] = ()) -> str:
    """Return the page. Raises KvvizError if plotly is not installed."""
    plotly = next(VENDOR.glob("plotly-cartesian-*.min.js")).read_text(encoding="utf-8")
    scripts = [_inline(script) for script in (plotly, (HERE / "page.js").read_text(encoding="utf-8"))]
    return rendered(
        document,
        records,
        css=(HERE / "page.css").read_text(encoding="utf-8"),
        hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts),
        figure=_data(json.dumps(_figure(document), allow_nan=False)),
        comparison=_data(to_json(records, document)),
        plotly=scripts[0],
        own=scripts[1],
    )


def rendered(document: Document, records: Sequence[Record], **parts: str) -> str:
    """Fill page.html in: the texts and tables from the comparison, scripts, styles and data from `parts`."""
    runs = [{**run, "title": _title(run), "colour": _colour(run, i)} for i, run in enumerate(document["runs"])]
    texts: dict[str, list[str]] = {}  # the titles of the modes with this text
    for run in document["runs"]:
        text = run["text"] if isinstance(run["text"], str) else "\n\n".join(run["text"])
        texts.setdefault(text, []).append(_title(run))
    started = next((record for record in records if record["t"] == "started"), None)
    prompt = document["prompt"] if document["prompt"] is not None or started is None else started["prompt"]["text"]
    prompt = f"{document['prompt_tokens']:,} random tokens" if prompt is None else prompt
    facts = {**document["environment"], "config": document.get("config_hash"), "comparison": document["id"]}
    return _template().render(document=document, runs=runs, texts=texts, prompt=prompt, facts=facts, **parts)


@cache
def _template() -> Template:
    page = Environment(autoescape=True, finalize=_plain)
    page.filters.update(seconds=_seconds, human=human)
    return page.from_string((HERE / "page.html").read_text(encoding="utf-8"))


def _plain(value: object) -> object:
    """Replace what no page can hold: null characters and lone surrogates."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode() if type(value) is str else value


def _seconds(s: float | None) -> str:
    if s is None:
        return "–"
    return f"{s:.2f} s" if s >= 1 else f"{s * 1000:.1f} ms" if s >= 0.01 else f"{s * 1000:.3f} ms"


def _inline(script: str) -> str:
    """Escape a script for a <script> element, so that nothing in it can end the element."""
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", script, flags=re.IGNORECASE)


def _data(text: str) -> str:
    """Escape JSON text so that nothing in it can end the element that it lies in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _title(run: Run) -> str:
    return title_of(run["mode"], run.get("engine"))


def _figure(document: Document) -> dict[str, object]:
    """Return the charts as plain values, each mode in its own colour, with the colours for a dark page."""
    try:
        from kvviz.charts.curves import curve_of, overlay
    except ImportError as error:
        raise KvvizError("the page's charts need plotly, which is not installed here; take json or csv") from error
    runs = document["runs"]
    baseline = next((i for i, run in enumerate(runs) if run["mode"] == document["reference"]), 0)
    curves = [curve_of(run, document["prompt_tokens"], _title(run)) for run in runs]
    figure = overlay(curves, baseline=baseline, view="all")
    plain = json.loads(figure.to_json())
    layout = {name: value for name, value in plain["layout"].items() if name != "template"}
    return {
        "traces": plain["data"],
        "layout": layout,
        "dark": {colour: palette.DARK[mode] for mode, colour in palette.LIGHT.items()},
        "filename": f"kvviz-{re.sub(r'[^A-Za-z0-9_-]', '', document['id'])[:40]}",
    }


def _colour(run: Run, number: int) -> str:
    return palette.LIGHT.get(run["mode"], palette.SERIES[number % len(palette.SERIES)])
