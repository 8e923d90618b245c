"""Settings that the layouts of all figures share."""

LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}  # a horizontal legend above the chart
