"""One colour per mode, the same on every page, based on Okabe and Ito's palette for colour-blind viewers.

https://jfly.uni-koeln.de/color/ ; dark pages use lighter variants. Lines differ in dash and marker as well.
"""

from collections.abc import Sequence
from typing import Any

from kvviz.caches.designs import DESIGNS

# mode: colour on a light page, colour on a dark page, dash, marker; a cache design's row defines its own
_MODES: dict[str, tuple[str, str, str, str]] = {
    "uncached": ("#D55E00", "#F28E4B", "solid", "diamond"),
    "cached": ("#0072B2", "#56B4E9", "solid", "circle"),
    "unpassed": ("#9A4B7D", "#E39BC4", "dot", "square"),
    "scratch": ("#8A6A00", "#F0E442", "dash", "triangle-up"),
    "fused": ("#7A4A2B", "#D9A98A", "longdashdot", "hourglass"),
    "compiled": ("#3D8B1F", "#9BD770", "dashdot", "bowtie"),
    "watched": ("#00755A", "#35C79E", "solid", "circle"),
    "static": ("#2C5F9E", "#8FB8F0", "dash", "hexagram"),
    "quantized": ("#6B6B00", "#CFCF5A", "dot", "star-diamond"),
    "lookup": ("#7A4FA3", "#C9A8EA", "dot", "diamond-tall"),
    "speculative": ("#C2185B", "#FF8FB8", "longdash", "star-square"),
    "endpoint": ("#27303D", "#DCE1E8", "solid", "cross"),
    **{design.name: design.line for design in DESIGNS.values()},
}
LIGHT, DARK, DASH, MARKER = ({name: row[i] for name, row in _MODES.items()} for i in range(4))

# Models side by side, or runs of one mode: none of the hues of a mode with or without a cache, nor of a state below.
# Their lines differ in dash as well.
SERIES = ("#7A4FA3", "#1E7A94", "#4B5563", "#C2185B", "#7A4A2B", "#6B6B00")
SERIES_DASH = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def line(mode: str, width: float = 2.5) -> dict[str, Any]:
    """Return Plotly's line of a mode, also of one that no longer exists."""
    return {"color": LIGHT.get(mode, "#555555"), "width": width, "dash": DASH.get(mode, "dash")}


def series_line(number: int, width: float = 2.5) -> dict[str, Any]:
    """Return Plotly's line of one of several models or runs; after the last colour the first is taken again."""
    i = number % len(SERIES)
    return {"color": SERIES[i], "width": width, "dash": SERIES_DASH[i]}


def lines_of(modes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines of runs of these modes: each in its mode's colour, a further run of a mode in another dash; a
    series where all are of one mode.
    """
    if len(set(modes)) == 1 < len(modes) or not set(modes) <= LIGHT.keys():
        return [series_line(number) for number in range(len(modes))]
    earlier = [modes[:number].count(mode) for number, mode in enumerate(modes)]
    return [
        {**line(mode), **({"dash": SERIES_DASH[again % len(SERIES_DASH)]} if again else {})}
        for mode, again in zip(modes, earlier, strict=True)
    ]


# What a colour means wherever tokens, slots or work are drawn: kept from before, made in this step, made once more,
# given up, or room without use; CODES are tokens rounded to fewer bits. `RAMP` is for values, which are none of these:
# heat maps, from little to much.
KEPT, NEW, AGAIN, GIVEN_UP, WASTED, FREE = "#0072B2", "#009E73", "#D55E00", "#9A4B7D", "#F3C25B", "#8A94A0"
CODES = "#7A6FBE"
RAMP = ("#F1ECFA", "#56348F")
MEANINGS = {"kept": KEPT, "new": NEW, "again": AGAIN, "gone": GIVEN_UP}  # as scripts call them

# Kinds of work, wherever a forward is divided: products with the weights, attention, what has neither, and the two
# phases: a prefill makes all its rows new, a decode step reads what is kept.
PRODUCTS, ATTENTION, ELSE = "#21839F", "#7A6FBE", "#D8B26E"
PREFILL, DECODE = NEW, KEPT

REFERENCE = "#5C6672"  # what figures are held against: a roof, a prediction, other models

# Requests that run together, told apart: neighbours of KEPT, and none of the colours of a state. On a light and on a
# dark page; white and black letters can be read on them.
REQUESTS = (
    ("#0072B2", "#56B4E9"),
    ("#2B3F7E", "#8FA6E8"),
    ("#1E7A94", "#5CC3D9"),
    ("#6D62B5", "#B7B0F2"),
    ("#4A5F7A", "#A3B6CC"),
    ("#3B6FD4", "#7FB0FF"),
)

# Colours of what a layer caches, and of what else occupies memory.
KINDS = {
    "full": "#0072B2",
    "sliding": "#56B4E9",
    "chunked": "#3FA7C4",
    "latent": "#00916E",
    "indexed": "#2E7D6B",
    "compressed": "#4B8F8C",
    "hidden": "#7D8B3A",
    "linear": "#B8860B",
    "hybrid": "#9A4B7D",
    "cross": "#7A6FBE",
    "shared": "#BFC7D0",
    "none": "#BFC7D0",
    "state": "#E69F00",
    "weights": "#8A94A0",
    "activations": "#D8B26E",
    "overhead": "#A34700",
    "graphs": "#7A6FBE",
}

# On a dark page each colour above is replaced by a lighter one; a colour without an entry stays unchanged.
PAPER = "#FFFFFF"  # the page itself, behind words that lines would strike through
ON_DEEP, ON_PALE = "#FEFEFE", "#101418"  # words on a dark and on a light bar
ON_DARK = {LIGHT[name]: DARK[name] for name in _MODES} | {
    PAPER: "#11161C",
    ON_DEEP: ON_PALE,  # all bars are light there
    "#56B4E9": "#A9D8F5",  # since "#0072B2" becomes "#56B4E9"
    "#3FA7C4": "#BFEAF5",
    "#00916E": "#35C79E",
    "#009E73": "#5FD9B4",
    "#2E7D6B": "#57B49C",
    "#B8860B": "#E0B84A",
    "#E69F00": "#FFCC66",
    "#F3C25B": "#C99A2E",
    "#7A6FBE": "#ADA4E6",
    "#A34700": "#CC7A3B",
    "#21839F": "#4FB3CF",
    "#1E7A94": "#5CC3D9",
    "#0F4C5C": "#9BD9EA",
    "#6B7C85": "#A3B4BD",
    REFERENCE: "#A9B4BF",
    "#3B4652": "#C3CDD7",
    "#C9D0D8": "#47525D",
    **dict(zip(RAMP, ("#2B2440", "#C7B4F2"), strict=True)),
}
