"""One colour per mode, the same on every page; from Okabe and Ito's set, told apart by colour-blind viewers.

https://jfly.uni-koeln.de/color/ ; lighter where the page is dark. Lines differ in dash and marker as well.
"""

from kvviz.caches.designs import DESIGNS

# mode: colour on a light page, on a dark one, dash of its line, marker; a cache design has its own in its row
_MODES: dict[str, tuple[str, str, str, str]] = {
    "uncached": ("#D55E00", "#F28E4B", "solid", "diamond"),
    "cached": ("#0072B2", "#56B4E9", "solid", "circle"),
    "unpassed": ("#9A4B7D", "#E39BC4", "dot", "square"),
    "scratch": ("#8A6A00", "#F0E442", "dash", "triangle-up"),
    "compiled": ("#3D8B1F", "#9BD770", "dashdot", "bowtie"),
    "watched": ("#00755A", "#35C79E", "solid", "circle"),
    "static": ("#2C5F9E", "#8FB8F0", "dash", "hexagram"),
    "quantized": ("#6B6B00", "#CFCF5A", "dot", "star-diamond"),
    **{design.name: design.line for design in DESIGNS.values()},
}
LIGHT, DARK, DASH, MARKER = ({name: row[i] for name, row in _MODES.items()} for i in range(4))

# Models side by side: six hues of the same set; the lines differ in dash as well.
SERIES = ("#0072B2", "#D55E00", "#00916E", "#9A4B7D", "#B8860B", "#4B5563")
SERIES_DASH = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

# What a layer keeps, and what lies beside it in memory.
KINDS = {
    "full": "#0072B2",
    "sliding": "#56B4E9",
    "chunked": "#3FA7C4",
    "latent": "#00916E",
    "indexed": "#2E7D6B",
    "linear": "#B8860B",
    "hybrid": "#9A4B7D",
    "cross": "#7A6FBE",
    "shared": "#BFC7D0",
    "none": "#BFC7D0",
    "state": "#E69F00",
    "weights": "#8A94A0",
    "activations": "#D8B26E",
}

# On a dark page each colour above becomes its lighter sister; what has none stays as it is.
ON_DARK = {LIGHT[name]: DARK[name] for name in _MODES} | {
    "#56B4E9": "#A9D8F5",  # "#0072B2" becomes it
    "#3FA7C4": "#BFEAF5",
    "#00916E": "#35C79E",
    "#009E73": "#5FD9B4",
    "#2E7D6B": "#57B49C",
    "#B8860B": "#E0B84A",
    "#E69F00": "#FFCC66",
    "#7A6FBE": "#ADA4E6",
    "#3B4652": "#C3CDD7",
}
