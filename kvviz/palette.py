"""One colour per mode, the same on every page; from Okabe and Ito's set, told apart by colour-blind viewers.

https://jfly.uni-koeln.de/color/ ; lighter where the page is dark. Lines differ in dash and marker as well.
"""

LIGHT = {"uncached": "#D55E00", "cached": "#0072B2", "unpassed": "#9A4B7D", "watched": "#00755A"}
DARK = {"uncached": "#F28E4B", "cached": "#56B4E9", "unpassed": "#E39BC4", "watched": "#35C79E"}
DASH = {"uncached": "solid", "cached": "solid", "unpassed": "dot", "watched": "solid"}
MARKER = {"uncached": "diamond", "cached": "circle", "unpassed": "square", "watched": "circle"}
