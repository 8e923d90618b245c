"""What the layouts of all figures share."""

LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}  # a row of names above the chart
