"""The document that a browser gets before anything of a page: Streamlit's own, with what each page will need at once.

The styles of the frame stand in it, so that no row is drawn first and moved afterwards. The scripts are named in it, so
that the browser fetches and reads them while it waits for Streamlit.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import streamlit

from kvviz.ui.folders import ASSETS, ASSETS_URL, FIRST, PAGES

STATIC = Path(streamlit.__file__).resolve().parent / "static"
STYLES = ("frame/frame.css", "frame/pages.css", "room/room.css")
SCRIPTS = ("frame/frame.js", "room/room.js")
OWN = {  # the script of its own part, for a page that begins with one
    "start": "live/live.js",
    "live": "live/live.js",
    "anatomy": "anatomy/anatomy.js",
    "memory": "memory/box.js",
    "serving": "serving/serving.js",
}
OF_PAGES = {  # the styles of its own part, for a page that begins with one
    "start": ["live/live.css"],
    "live": ["live/live.css"],
    "anatomy": ["live/live.css", "anatomy/anatomy.css", "anatomy/walkthrough.css"],
    "memory": ["memory/memory.css"],
    "serving": ["live/live.css", "serving/serving.css"],
}
CHUNKS = ("BidiComponent", "ButtonGroup", "Html")  # of Streamlit's frontend, each loaded with its first element
LATER = {  # those that a page needs with a click, to be loaded while nobody waits
    "mistakes": ["StreamlitSyntaxHighlighter"],
    "caches": ["DataFrame"],
    "serving": ["Selectbox", "DataFrame"],
    "quiz": ["TextInput", "Radio"],
    "lesson": ["StreamlitSyntaxHighlighter"],
}
CHART = "shared/plot.js"
CHARTS = ("compare", "sweep", "roofline", "caches", "memory", "cost")  # pages that begin with a chart that Python made
HEAD = 20_000  # characters, within which a script names what it imports
_IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*["'](\.{1,2}/[^"']+\.js)["']""")


def documents() -> dict[str, str]:
    """The document of each page, by its path; what else is asked for gets Streamlit's."""
    names = [script.stem for script in PAGES.glob("*.py")]
    return {"/" if name == FIRST else f"/{name}": document(name) for name in names}


def document(name: str) -> str:
    """Streamlit's document with the styles and scripts of a page."""
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    styles = [*STYLES, *OF_PAGES.get(name, [])]
    sheets = "".join(f'<link rel="stylesheet" href="{ASSETS_URL}/{path}">' for path in styles)
    loaded = "".join(f'<link rel="modulepreload" href="{url}">' for url in _scripts(name) if url not in text)
    # in the body, after the styles that Streamlit puts into the head
    return re.sub("<body[^>]*>", lambda body: body[0] + sheets, text.replace("</head>", f"{loaded}</head>"), count=1)


def _scripts(name: str) -> list[str]:
    own = (*SCRIPTS, *([OWN[name]] if name in OWN else []), *([CHART] if name in CHARTS else []))
    ours = [f"{ASSETS_URL}/{path.relative_to(ASSETS)}" for path in with_imports([ASSETS / path for path in own])]
    return [*ours, *(f"./{path.relative_to(STATIC)}" for path in with_imports(_chunks(CHUNKS)))]


def _chunks(names: Iterable[str]) -> list[Path]:
    return [path for name in names for path in (STATIC / "static" / "js").glob(f"{name}.*.js")]


@cache
def later() -> dict[str, list[str]]:
    """The addresses of the scripts that a page, by its name, needs with a click."""
    return {page: [f"/{path.relative_to(STATIC)}" for path in _chunks(names)] for page, names in LATER.items()}


def with_imports(scripts: list[Path]) -> list[Path]:
    """These scripts and all that they import at once, each once."""
    found = dict.fromkeys(path.resolve() for path in scripts)
    waiting = list(found)
    while waiting:
        script = waiting.pop()
        with script.open(encoding="utf-8") as text:
            named = _IMPORT.findall(text.read(HEAD))
        paths = ((script.parent / name).resolve() for name in named)  # what only looks like an import is no file
        new = [path for path in paths if path not in found and path.is_file()]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)
