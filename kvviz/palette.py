"""One colour per mode, the same on every page; from Okabe and Ito's set, told apart by colour-blind viewers.

https://jfly.uni-koeln.de/color/ ; lighter where the page is dark. Lines differ in dash and marker as well.
"""

LIGHT = {
    "uncached": "#D55E00",
    "cached": "#0072B2",
    "unpassed": "#9A4B7D",
    "scratch": "#8A6A00",
    "compiled": "#3D8B1F",
    "watched": "#00755A",
}
DARK = {
    "uncached": "#F28E4B",
    "cached": "#56B4E9",
    "unpassed": "#E39BC4",
    "scratch": "#F0E442",
    "compiled": "#9BD770",
    "watched": "#35C79E",
}
DASH = {
    "uncached": "solid",
    "cached": "solid",
    "unpassed": "dot",
    "scratch": "dash",
    "compiled": "dashdot",
    "watched": "solid",
}
MARKER = {
    "uncached": "diamond",
    "cached": "circle",
    "unpassed": "square",
    "scratch": "triangle-up",
    "compiled": "bowtie",
    "watched": "circle",
}

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
