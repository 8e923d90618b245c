"""Plain data in, a Plotly figure out. Imported only when a figure is asked for."""
