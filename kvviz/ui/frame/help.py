"""What the frame adds to every page in the browser: the field's words explained, and the figures behind each chart."""

from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.document import later
from kvviz.ui.frame.glossary import for_browser
from kvviz.ui.shared.component import component

_component = component("kvviz_frame", "frame/frame.js", "kv-frame")


def explain() -> None:
    """Mount the script that does it."""
    _component(key="frame", data={"assets": ASSETS_URL, "glossary": for_browser(), "later": later()})
